package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"stint/state"
)

// maxInputs is how much the files that come with a task may have together, in
// bytes. A master refuses more.
const maxInputs = 1 << 20

// readInputs reads the files that a task is to come with. Their names are the
// paths as they were given, or their last parts if these lead out of here.
func readInputs(paths []string) (files []state.InputFile, err error) {
	left := int64(maxInputs)
	for _, path := range paths {
		text, err := readInput(path, left)
		if err != nil {
			try := "put large files into the working directory and name them in the prompt"
			if errors.Is(err, syscall.EISDIR) {
				try = "give each file of it an --input-file of its own, or let the task work in that directory with -C DIR"
			}
			return nil, &cliError{code: exitUsage, message: "cannot take the input file " + path, err: plainError(err), try: try}
		}
		left -= int64(len(text))
		name := filepath.Clean(path)
		if !filepath.IsLocal(name) {
			name = filepath.Base(name)
		}
		files = append(files, state.InputFile{Name: filepath.ToSlash(name), Content: text})
	}
	return files, nil
}

// readInput reads a file of at most so many bytes.
func readInput(path string, most int64) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // only read from
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("the input files have more than %d bytes together", maxInputs)
	}
	return string(data), err
}
