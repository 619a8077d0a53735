package coordinator

import (
	"fmt"
	"path"
	"slices"
	"unicode/utf8"
)

// Bounds of what comes and goes with a task.
const (
	MaxInputFiles = 1 << 20 // bytes of all input files of a task together
	maxFiles      = 100     // files in or out
)

// checkInputFiles checks the files that come with a task.
func checkInputFiles(s *TaskSpec) error {
	if len(s.InputFiles) > maxFiles {
		return wrong("inputFiles", "put them into the workspace and name them in the prompt", "%d input files are too many; at most %d are taken", len(s.InputFiles), maxFiles)
	}
	names, size := map[string]bool{}, 0
	files := slices.Clone(s.InputFiles)
	for i := range files {
		f := &files[i]
		name, err := checkFileName("input file", f.Name)
		if err != nil {
			return inField(fileField(i, "name"), err)
		}
		if names[name] {
			return wrong(fileField(i, "name"), "give each a name of its own", "two input files are named %q", name)
		}
		if !utf8.ValidString(f.Content) {
			return wrong(fileField(i, "content"), "put it into the workspace and name it in the prompt", "the input file %s is not valid UTF-8", name)
		}
		names[name], f.Name = true, name
		if size += len(f.Content); size > MaxInputFiles {
			return wrong("inputFiles", "put them into the workspace and name them in the prompt", "the input files have more than %d bytes together", MaxInputFiles)
		}
	}
	s.InputFiles = files
	return checkNested(names)
}

func fileField(i int, name string) string { return fmt.Sprintf("inputFiles.%d.%s", i, name) }

// checkNested refuses names of which one is a directory of another.
func checkNested(names map[string]bool) error {
	for name := range names {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if names[dir] {
				return wrong("inputFiles", "rename one of them", "%q is an input file and a directory of the input file %q", dir, name)
			}
		}
	}
	return nil
}

// checkOutputSpec checks the names of the files that are collected after a run.
func checkOutputSpec(s *TaskSpec) error {
	if len(s.OutputSpec) > maxFiles {
		return wrong("outputSpec", "let the agent pack them into one", "%d output files are too many; at most %d are collected", len(s.OutputSpec), maxFiles)
	}
	var list []string
	for i, name := range s.OutputSpec {
		name, err := checkFileName("output file", name)
		if err != nil {
			return inField(fmt.Sprintf("outputSpec.%d", i), err)
		}
		if !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	s.OutputSpec = list
	return nil
}

// checkFileName is cleanPath for what a client names.
func checkFileName(what, name string) (string, error) {
	clean, err := cleanPath(name)
	if err != nil {
		return "", invalid("name it relative to the workspace, such as out/results.txt", "%v", &fileError{what, name, err})
	}
	return clean, nil
}

// noFallback is the word for no fallback at all, where one is configured.
const noFallback = "none"

// fillFallback checks the agents that may take over, and fills in those of the
// configuration where the spec leaves everything open.
func (c *Coordinator) fillFallback(s *submission) error {
	named := s.Fallback
	if s.open = len(named) == 0 && !s.named && s.SessionKey == "" && !s.Continue && s.AgentSession == ""; s.open {
		for _, agent := range c.cfg.Fallback {
			if c.cfg.Agents[agent] != nil {
				named = append(named, agent)
			}
		}
	}
	if len(named) == 1 && named[0] == noFallback {
		named = nil
	}
	var list []string
	for _, agent := range named {
		if err := c.checkAgentName(agent); err != nil {
			return atFallback(err)
		}
		if agent != s.Agent && !slices.Contains(list, agent) {
			list = append(list, agent)
		}
	}
	s.Fallback = list
	return nil
}

// atFallback says that an agent is wrong as a fallback.
func atFallback(err error) error {
	e, ok := err.(*Error)
	if !ok {
		return err
	}
	return &Error{Code: e.Code, Message: "fallback: " + e.Message, Hint: e.Hint, Field: "fallback"}
}
