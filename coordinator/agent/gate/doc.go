// Package gate starts a program, an agent or a verify command, holds all that it starts, and ends it.
//
// A run has a process of its own above it, the gate, in a session of its own: the program stint-gate if it lies
// beside stint and is of the same build, else stint itself as the hidden subcommand gate ([hold.Main]). The gate
// waits until the master has its pid, start time and boot id in runs/<runId>/lock, and only then starts the
// agent. It is the agent's parent and, on Linux, the reaper of everything that the agent leaves behind: a
// descendant that daemonises becomes the gate's child. It reports the end of a run only when no descendant is left, and when the master is gone it ends them all
// by itself. So "Supervise has returned" means that nothing of the run lives.
//
//	master --control pipe--> gate --fork--> agent --...--> its tools
//	       <--status pipe---      stdin prompt.md, or a file made of it; stdout and stderr to files
//	                              fd 3: the run's lock, held by gate and agent
//
// The files come to the gate as descriptors. The kernel tells the supervisor when the agent has written.
//
// Where a cgroup (version 2) can be made below the master's own, the agent is born in one, stint-<runId>:
// then the kernel kills all of a run at one blow, however fast it forks and whoever its processes belong to,
// also when the gate is dead. Where not, the gate goes through its descendants until there are none. What has
// lost its gate and has no cgroup is found by the run's id in its environment.
//
// After a crash [Recover] proves an old run dead, or says that it cannot.
//
// # Where this ends
//
// Other systems than Linux have no subreaper: there a run is ended by its process group, and what left the
// group is out of reach. So is, everywhere, work that was handed to another program (tmux, at, docker), and,
// without a cgroup, a process of another user, or one that has killed the gate and cleared its environment.
package gate
