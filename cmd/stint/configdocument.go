package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"stint/coordinator/admission"
	"stint/prompt"
)

// A document is a setting that may be long: the text itself, a word that stands for
// one, such as none, or @FILE.
type document struct {
	value string // as it was set
	text  string // what it stands for
}

// maxDocument is the largest file that a setting may name, in bytes.
const maxDocument = 64 << 10

// documentKey is a text, a word that stands for one, or @FILE, which is read at once.
// take returns what is wrong with the text, or sets what follows from it; it may be nil.
func documentKey(name, def, help string, words map[string]string, take func(c *Config, text string) error, field func(*Config) *document) key {
	k := textKey(name, def, help+", or @FILE", nil)
	k.set = func(c *Config, value string) error {
		text, isWord := words[value]
		if path, isFile := strings.CutPrefix(value, "@"); isFile {
			var err error
			if text, err = readDocument(path); err != nil {
				return err
			}
		} else if !isWord {
			text = value
		}
		if take != nil {
			if err := take(c, text); err != nil {
				return inFile(value, err)
			}
		}
		*field(c) = document{value, text}
		return nil
	}
	k.get = func(c *Config) any { return field(c).value }
	return k
}

// inFile says in which file something is wrong, if the setting names one.
func inFile(value string, err error) error {
	if path, isFile := strings.CutPrefix(value, "@"); isFile {
		return fmt.Errorf("%s: %w", path, err)
	}
	return err
}

// templateKey is a document that is a template of prompts.
func templateKey(name, help string) key {
	parse := func(c *Config, text string) error {
		t, err := prompt.ParseTemplate(text)
		if err == nil {
			c.template = t
		}
		return err
	}
	return documentKey(name, "default", help, map[string]string{"default": "", "": ""}, parse, func(c *Config) *document { return &c.PromptTemplate })
}

// checkFollowUp returns what is wrong with a setting that is the prompt of a follow-up.
func checkFollowUp(_ *Config, text string) error { return admission.CheckTemplate(text) }

// readDocument reads the file of a setting.
func readDocument(path string) (string, error) {
	path, err := expandHome(path)
	if err != nil {
		return "", err
	}
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("%q is not an absolute path; write @/path/of/the/file", path)
	}
	if fi, err := os.Stat(path); err == nil && !fi.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // it was only read
	data, err := io.ReadAll(io.LimitReader(f, maxDocument+1))
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	switch {
	case err != nil:
		return "", err
	case len(data) > maxDocument:
		return "", fmt.Errorf("%s has more than the %d bytes that are taken", path, maxDocument)
	case !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0:
		return "", fmt.Errorf("%s is no text in UTF-8", path)
	}
	return string(data), nil
}
