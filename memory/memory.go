// Package memory says what a find in a workspace's notes is.
//
// The notes are Markdown files that people and agents keep beside the code:
// MEMORY.md and memory/*.md. A find is one line of one of them. It is somebody's
// text, so whoever shows it to an agent shows it as quoted data.
package memory

import "strconv"

// A Hit is one line of a note that fits a task.
type Hit struct {
	Path string // of the note, below the workspace
	Line int    // counted from 1
	Text string // the line without its line break
}

// String gives the hit as "path:line text". What Path and Text contain is not
// changed, so the string has line breaks if they have.
func (h Hit) String() string {
	return h.Path + ":" + strconv.Itoa(h.Line) + " " + h.Text
}
