package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"stint/coordinator/task"
)

// A promptSource is where a prompt comes from.
type promptSource struct {
	args    []string
	literal bool // the arguments stood after --: they are the prompt, whatever they look like
	edit    bool
	stdin   io.Reader
	editor  func(text string) (string, error)
}

// read returns the prompt, checked. Newlines at the end of a file, of stdin and of
// an edited text are not part of it.
func (p promptSource) read() (string, error) {
	text, err := p.text()
	if err != nil {
		return "", err
	}
	return text, task.CheckPrompt(text)
}

func (p promptSource) text() (string, error) {
	joined := strings.Join(p.args, " ")
	switch {
	case p.edit:
		text, err := p.editor(joined)
		return trimEnd(text), err
	case len(p.args) == 0:
		return "", usage(`stint task "PROMPT", stint task @FILE, or stint task - for stdin`, "there is no prompt")
	case p.literal || len(p.args) > 1:
		return joined, nil
	case joined == "-":
		text, err := readPrompt(p.stdin, "stdin")
		return trimEnd(text), err
	default:
		return textOrFile(joined)
	}
}

// textOrFile returns a text, or with @FILE that of a file; @@ begins a text with @.
func textOrFile(text string) (string, error) {
	switch {
	case strings.HasPrefix(text, "@@"):
		return text[1:], nil
	case strings.HasPrefix(text, "@"):
		text, err := readPromptFile(text[1:])
		return trimEnd(text), err
	default:
		return text, nil
	}
}

// readPromptFile reads a prompt from a file.
func readPromptFile(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", &cliError{code: exitUsage, message: "cannot read the prompt", err: err, try: "stint task @FILE; for a prompt that begins with @: stint task @@..."}
	}
	text, err := readPrompt(f, name)
	return text, errors.Join(err, f.Close())
}

// readPrompt reads a prompt that is not much too long.
func readPrompt(r io.Reader, name string) (string, error) {
	data, err := io.ReadAll(io.LimitReader(r, task.MaxPrompt+4096))
	if err != nil {
		return "", &cliError{code: exitFailure, message: "cannot read the prompt from " + name, err: err}
	}
	return string(data), nil
}

func trimEnd(s string) string { return strings.TrimRight(s, "\r\n") }

// runEditor lets the user write a text with an editor. Its output goes to stderr:
// stdout is for the answer.
func runEditor(text string) (string, error) {
	dir, err := os.MkdirTemp("", "stint-edit-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }() // in the temporary directory
	name := filepath.Join(dir, "prompt.md")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		return "", err
	}
	if err := openEditor(name, os.Stderr); err != nil {
		return "", &cliError{code: exitFailure, message: "nothing was queued", err: err, try: "export EDITOR=..."}
	}
	return readPromptFile(name)
}
