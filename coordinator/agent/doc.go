// Package agent runs coding agents: argv out, events in. An agent is a folder below with a [Kind], an
// [Adapter] for its CLI, and a [Decoder] for the CLI's events and for what it says of its errors. What all of
// them share is here: how a turn ends, by the table below, how a CLI is asked about itself, and the shell of
// verify commands ([Shell]). Package gate starts the programs and ends all that is left of them.
//
// # Text is text
//
// What a prompt holds is data, whoever wrote it: the user, a note, a verify command, an
// earlier answer. The CLIs take parts of it for more:
//
//	        in a prompt                              what is done about it
//	------  ---------------------------------------  -------------------------------------------
//	codex   $name of a skill adds the skill's text   nothing: codex has no option for it
//	claude  @path, @server:resource, @agent add      stream-json input with client_composed, the
//	        content; a slash at the start is a       protocol's mark of a text that nobody typed
//	        command; ultrathink and the like
//	        @path in a skill that the model uses     CLAUDE_CODE_DISABLE_FILE_MENTIONS
//	        all of it, before 2.1.299                CLAUDE_CODE_DISABLE_ATTACHMENTS
//	gemini  @path, @server:resource, @agent add      a backslash before each @, as prompt.md has
//	        content and change the text; a slash     it ([task.PromptEscaper])
//	        at the start is a command
//
// CLAUDE_CODE_DISABLE_ATTACHMENTS alone would do for claude, but it takes the lists of skills and of deferred
// tools (all those of MCP servers) from the model, and nested CLAUDE.md files.
//
// # What counts as success
//
// The exit code alone says little: codex ends with 0 after a turn that failed, and may hang after one that
// went well; claude ends with 0 when it is interrupted, gemini when it is told to end. So the class of a run
// comes from this table, read from the top; "stopped" means that we ended the run.
//
//	how it ended                            terminal event   answer  class
//	--------------------------------------  ---------------  ------  --------------
//	program not found or not executable     -                -       agent-missing
//	not started: no room, files, processes  -                -       interrupted
//	canceled by a person                    any              any     canceled
//	stopped, for whatever other reason      completed        yes     success
//	stopped after a hang                    completed        no      output-missing
//	stopped after a hang                    failed           any     by its report
//	stopped: waits for the network only     else             any     network
//	stopped: waits for a rate limit only    else             any     rate-limited
//	stopped: timeout                        else             any     timeout
//	stopped: silent since an error          else             any     by its report
//	stopped: no output for too long         else             any     stalled
//	stopped: shutdown                       else             any     interrupted
//	the gate was killed by someone          completed        yes     success
//	the gate was killed by someone          else             any     interrupted
//	exit 0                                  completed        yes     success
//	exit 0                                  completed        no      output-missing
//	exit 0 or not                           failed           any     by its report
//	exit 0                                  none             any     exit
//	a signal                                completed        yes     success
//	a signal                                failed           any     by its report
//	a signal                                else             any     stalled
//	exit not 0                              completed        any     exit
//	exit not 0                              none, an error   any     by its report
//	exit 126 or 127                         no event at all  -       agent-missing
//	exit not 0                              no event at all  -       by its stderr
//
// A CLI may report an error, such as a 429, and then sleep before it tries again. While it has reported
// nothing else since (no message, no tool, no step of its thinking), that error decides: without a network
// the run is stopped after a minute, with a rate limit after two, and when the idle limit stops it, its class
// is that of the error. gemini reports these errors on stderr ("Attempt 1 failed with status 429").
//
// A signal is one that we have not sent, also below a shell that ends with 128 and its number: the kernel wanted memory, the agent
// had a bug, or somebody killed it. One that enforces a limit of the run itself (processor time, size of a file) gives exit.
//
// The terminal event of each CLI, and where its report of an error is read:
//
//	        completed                    failed                     the report
//	------  ---------------------------  -------------------------  ---------------------------------
//	codex   turn.completed               turn.failed                the message of turn.failed, or of
//	                                                                the last error; without any event
//	                                                                the "Error:" line of stderr
//	claude  result, not is_error, and    result otherwise: its      error and HTTP status of the
//	        subtype success              subtype may be success     result, the last assistant event
//	                                     too; also on SIGINT        or api_retry
//	gemini  result, status success:      result, status error       exit code + 256 as HTTP status,
//	        also when it stopped in a                               else the code in the quoted API
//	        loop, then without answer                               error; without any event 41, and
//	                                                                42 with its line on stderr;
//	                                                                without an error in the result
//	                                                                the last error event
//
// The answer is the last message of the agent. Warnings of gemini are notes of a success. Tools that the
// agent was denied are findings, whatever the class: claude's permission_denials; gemini's tool results of
// type tool_not_registered or policy_violation, or outside of its workspace; codex's commands that it
// declines or has no sandbox for, changes that failed, and the patches that it rejects on stderr, unless it
// runs without a sandbox. What its sandbox keeps a command from, only the command's output tells.
//
// By its report means [state.ClassRateLimited], [state.ClassAuth] (also where the provider wants to be paid),
// [state.ClassNetwork], [state.ClassSessionLost], [state.ClassSessionBusy], [state.ClassContextFull] or [state.ClassExit]. Only
// what the CLI itself reports as an error is looked at, never the agent's answer: a program about rate limits is not rate-limited.
//
// # Sessions
//
// A session is told of when it can be resumed, not when it is first named: codex from turn.started, claude once a request was
// on its way, gemini once a tool was called or the turn is over. A turn that did not end well may have left its prompt in the
// session (task.Outcome.Kept): with codex and claude as soon as a request was on its way; gemini takes it out again when the
// first request of the turn fails, and keeps it when a tool was called or it was killed while the model spoke.
//
// A turn that goes on with a kept prompt forks the session (task.Turn.Fork), as codex and claude can, and is
// told of its fork only once the agent has said something or used a tool. If it is refused before that, the
// next turn forks the same session again, so that tries leave no trace in the conversation. A fork of codex's
// reads the thread that it comes from: both files are needed to resume it.
//
// Codex counts the tokens of the whole thread (task.Outcome.Thread); claude and gemini count those of the
// run. Claude's dollars are taken only where an API key or a cloud pays by them.
package agent
