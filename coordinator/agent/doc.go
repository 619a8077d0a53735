// Package agent runs coding agents: argv out, events in. It fills
// coordinator.Agent with one adapter for each CLI ([Codex], [Demo]) over one
// supervisor.
//
// # How a run is held
//
// A run has a process of its own above it, the gate: stint itself, started as
// the hidden subcommand gate ([GateMain]) in a session of its own. The gate
// waits until the master has its pid, start time and boot id on disk
// (runs/<runId>/run.json), and only then starts the agent. It is the agent's
// parent and, on Linux, the reaper of everything that the agent leaves behind:
// a descendant that daemonises becomes the gate's child. It reports the end of
// a run only when no descendant is left, and when the master is gone it ends
// them all by itself. So "Run has returned" means that nothing of the run lives.
//
//	master --control pipe--> gate --fork--> agent --...--> its tools
//	       <--status pipe---      stdin prompt.md, stdout and stderr to files
//	                              fd 3: the run's lock, held by gate and agent
//
// After a crash [Recover] proves an old run dead, or says that it cannot.
//
// # What counts as success
//
// The exit code alone says little: codex ends with 0 after a turn that failed,
// and may hang after one that went well. So the class of a run comes from this
// table, read from the top; "stopped" means that we ended the run.
//
//	how it ended                            terminal event   answer  class
//	--------------------------------------  ---------------  ------  --------------
//	program not found or not executable     -                -       agent-missing
//	canceled by a person                    any              any     canceled
//	stopped, for whatever other reason      turn.completed   yes     success
//	stopped after a hang                    turn.completed   no      output-missing
//	stopped after a hang                    turn.failed      any     by its message
//	stopped: timeout                        else             any     timeout
//	stopped: no output for too long         else             any     stalled
//	stopped: shutdown                       else             any     interrupted
//	the gate was killed by someone          turn.completed   yes     success
//	the gate was killed by someone          else             any     interrupted
//	exit 0                                  turn.completed   yes     success
//	exit 0                                  turn.completed   no      output-missing
//	exit 0 or not                           turn.failed      any     by its message
//	exit 0                                  none             any     exit
//	exit not 0, or a signal                 turn.completed   any     exit
//	exit not 0                              none, an error   any     by its message
//	exit 127                                no event at all  -       agent-missing
//	exit not 0                              no event at all  -       by codex's "Error:" line on stderr
//	a signal                                none             any     exit
//
// By its message means [state.ClassRateLimited], [state.ClassAuth],
// [state.ClassNetwork], [state.ClassSessionLost], [state.ClassSessionBusy] or
// [state.ClassExit]. Only what the CLI itself reports as an error is looked at,
// never the agent's answer: a program about rate limits is not rate-limited.
//
// # Where this ends
//
// Other systems than Linux have no subreaper: there a run is ended by its
// process group, and what left the group is out of reach. So is, everywhere,
// work that was handed to another program (tmux, at, docker), and a process of
// another user.
package agent
