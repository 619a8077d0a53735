package main

import (
	"fmt"
	"os"
	"os/exec"
)

// editors are tried in this order where neither $VISUAL nor $EDITOR is set.
var editors = []string{"sensible-editor", "nano", "vi"}

// chooseEditor gives the user's editor as a piece of shell: it may have options,
// as in "code --wait".
func chooseEditor() (string, error) {
	for _, name := range []string{"VISUAL", "EDITOR"} {
		if editor := os.Getenv(name); editor != "" {
			return editor, nil
		}
	}
	for _, name := range editors {
		if _, err := exec.LookPath(name); err == nil {
			return name, nil
		}
	}
	return "", usage("export EDITOR=...", "there is no editor: neither $VISUAL nor $EDITOR is set, and nano and vi are not installed")
}

// openEditor lets the user edit a file. stdout is where the editor's own output
// goes, often the terminal. The error says that the editor did not end well.
func openEditor(file string, stdout *os.File) error {
	editor, err := chooseEditor()
	if err != nil {
		return err
	}
	cmd := exec.Command("/bin/sh", "-c", editor+` "$1"`, "sh", file)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("the editor %q failed: %w", editor, err)
	}
	return nil
}
