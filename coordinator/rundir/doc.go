// Package rundir has what lies below runs/<runId> of a state directory, where agents may
// have put anything in the place of anything: the prompt as it was sent, the files that came
// with the task and those that were collected after it, the answer, and the output streams.
// What a file is called there, and how it is opened without following a link, is known here
// alone, as is how the directories below work_dir are removed.
package rundir
