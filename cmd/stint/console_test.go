package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/text"
)

// A codeBlock is a block of code in a document.
type codeBlock struct {
	language string // the info string: "console", "console check", "toml" …
	line     int    // where its text begins
	text     string
}

// codeBlocks returns the blocks of code in a document; an indented one has no language.
func codeBlocks(doc []byte) (blocks []codeBlock) {
	_ = ast.Walk(goldmark.DefaultParser().Parse(text.NewReader(doc)), func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if k := n.Kind(); !entering || k != ast.KindFencedCodeBlock && k != ast.KindCodeBlock || n.Lines().Len() == 0 {
			return ast.WalkContinue, nil
		}
		b := codeBlock{text: string(n.Lines().Value(doc)), line: 1 + bytes.Count(doc[:n.Lines().At(0).Start], []byte("\n"))}
		if f, ok := n.(*ast.FencedCodeBlock); ok && f.Info != nil {
			b.language = string(f.Info.Value(doc))
		}
		blocks = append(blocks, b)
		return ast.WalkContinue, nil
	}) // the function has no errors
	return blocks
}

// A consoleStep is a command of a console block, and what the block shows of its output.
type consoleStep struct {
	line    int
	command string
	output  []string // none: it is not shown
}

// consoleSteps reads a console block: lines that begin with "$ " are commands, which a
// backslash continues, and the lines up to the next one are output.
func consoleSteps(b codeBlock) (steps []consoleStep) {
	continued := false
	for i, line := range strings.Split(strings.TrimSuffix(b.text, "\n"), "\n") {
		command, ok := strings.CutPrefix(line, "$ ")
		switch {
		case ok:
			steps = append(steps, consoleStep{line: b.line + i, command: command})
		case len(steps) == 0:
			steps = append(steps, consoleStep{line: b.line + i, command: "false # the block does not begin with a command"})
		case continued:
			steps[len(steps)-1].command += "\n" + line
		default:
			steps[len(steps)-1].output = append(steps[len(steps)-1].output, line)
			continue
		}
		continued = strings.HasSuffix(line, "\\")
	}
	return steps
}

// cmdConsole: console FILE [PART] runs the console blocks of a document that are marked with
// that part (claude, http, postgres), or with none, each in a shell of its own, and compares
// what is printed with what the block shows: … stands for any text of a line, alone in a line
// for any lines. Our port is that of $HTTP. A command may fail only if the next one is echo $?. Of a block that is marked
// "check" (it takes minutes, or needs another machine) only commands and options are looked up.
func cmdConsole(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, 1, 2, "console FILE [PART]")
	name := filepath.Base(args[0])
	for _, b := range codeBlocks([]byte(ts.ReadFile(args[0]))) {
		switch b.language {
		case strings.Join(append([]string{"console"}, args[1:]...), " "):
			runConsole(ts, name, consoleSteps(b))
		case "console check":
			for _, s := range consoleSteps(b) {
				if err := commandsExist(s.command); err != nil {
					ts.Fatalf("%s:%d: %v", name, s.line, err)
				}
			}
		}
	}
}

func runConsole(ts *testscript.TestScript, name string, steps []consoleStep) {
	script := "exec 2>&1\n"
	for _, s := range steps {
		script += strings.ReplaceAll(s.command, "127.0.0.1:7433", ts.Getenv("HTTP")) + "\nrc=$?; printf '\\001%d\\n' $rc; (exit $rc)\n"
	}
	if err := ts.Exec("sh", "-c", script); err != nil {
		var exit interface{ ExitCode() int }
		if !errors.As(err, &exit) {
			ts.Fatalf("%s:%d: %v", name, steps[0].line, err)
		}
	}
	rest := ts.ReadFile("stdout")
	for i, s := range steps {
		output, after, _ := strings.Cut(rest, "\x01")
		code, after, _ := strings.Cut(after, "\n")
		rest = after
		if expected := i+1 < len(steps) && steps[i+1].command == "echo $?"; code != "0" && !expected {
			ts.Fatalf("%s:%d: %s\nexit code %s:\n%s", name, s.line, s.command, code, output)
		}
		if len(s.output) > 0 && !consoleForm(s.output).MatchString(output) {
			ts.Fatalf("%s:%d: %s\nprints\n%swhere the document has\n%s", name, s.line, s.command, output, strings.Join(s.output, "\n"))
		}
	}
}

// consoleForm returns what the output of a command must match.
func consoleForm(lines []string) *regexp.Regexp {
	form := "^"
	for _, line := range lines {
		if line == "…" {
			form += "(?:.*\n)*"
			continue
		}
		form += strings.ReplaceAll(regexp.QuoteMeta(strings.TrimRight(line, " ")), "…", ".*") + " *\n"
	}
	return regexp.MustCompile(form + "$")
}

// commandsExist returns an error if a command line calls stint with a command or an option that there is not.
func commandsExist(line string) error {
	line = strings.ReplaceAll(line, "go run ./cmd/stint", "stint")
	for _, words := range shellCommands(line) {
		for len(words) > 0 && strings.Contains(words[0], "=") {
			words = words[1:]
		}
		if len(words) < 2 || words[0] != "stint" {
			continue
		}
		root := (&app{}).rootCommand(nil)
		cmd, rest, err := root.Find(words[1:])
		if err == nil && cmd != root {
			err = cmd.ParseFlags(rest)
		}
		if err != nil || cmd == root {
			return fmt.Errorf("%s: there is no such command or option: %v", strings.Join(words, " "), err)
		}
	}
	return nil
}

// shellCommands splits a command line into the words of its commands. What stands in
// double quotes is one word, also with commands in it.
func shellCommands(line string) (commands [][]string) {
	var words []string
	word, quote, inWord := "", rune(0), false
	end := func() {
		if inWord {
			words = append(words, word)
		}
		word, inWord = "", false
	}
	for _, r := range line + "\n" {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word += string(r)
		case r == '\'' || r == '"':
			quote, inWord = r, true
		case strings.ContainsRune("|;&()<>\n", r):
			if end(); words != nil {
				commands, words = append(commands, words), nil
			}
		case r == ' ' || r == '\\':
			end()
		case r == '#' && !inWord:
			end()
			return append(commands, words)
		default:
			word, inWord = word+string(r), true
		}
	}
	return commands
}

// TestDocuments: each block of code in the README and the manual says what it is, and is
// checked: console blocks by the scripts called manual, configuration here.
func TestDocuments(t *testing.T) {
	files, err := filepath.Glob("help/*.md")
	must(t, err)
	known := map[string]bool{"console": true, "console check": true, "console claude": true, "console http": true, "console postgres": true, "toml": true, "markdown": true, "text": true, "template": true}
	for _, file := range append(files, "../../README.md") {
		for _, b := range codeBlocks(get(t, file)) {
			if where := file + ":" + strconv.Itoa(b.line); !known[b.language] {
				t.Errorf("%s: a block of code of the kind %q", where, b.language)
			} else if b.language == "toml" {
				config := filepath.Join(t.TempDir(), "config.toml")
				must(t, os.WriteFile(config, []byte(b.text), 0o600))
				if _, err := loadConfig(configSource{file: config, required: true, lookup: func(string) (string, bool) { return "", false }}); err != nil {
					t.Errorf("%s: %v", where, err)
				}
			}
		}
	}
	readme := get(t, "../../README.md")
	if lines, words := bytes.Count(readme, []byte("\n")), len(bytes.Fields(readme)); lines > 150 || words > 1300 {
		t.Errorf("the README has %d lines and %d words; it is to have 150 and 1,300 at most", lines, words)
	}
}

func TestConsoleBlocks(t *testing.T) {
	doc := "# x\n\n```console\n$ echo a \\\n  b\na …\n…\n$ false\n$ echo $?\n1\n```\n\n    indented\n"
	blocks := codeBlocks([]byte(doc))
	if len(blocks) != 2 || blocks[0].language != "console" || blocks[0].line != 4 || blocks[1].language != "" {
		t.Fatalf("%+v", blocks)
	}
	got := fmt.Sprintf("%+v", consoleSteps(blocks[0]))
	if want := "[{line:4 command:echo a \\\n  b output:[a … …]} {line:8 command:false output:[]} {line:9 command:echo $? output:[1]}]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for output, want := range map[string]bool{"a b\n": true, "a \nx\ny\n": true, "b\n": false} {
		if consoleForm([]string{"a …", "…"}).MatchString(output) != want {
			t.Errorf("%q is not %t", output, want)
		}
	}
	for line, want := range map[string]bool{
		`id=$(stint task -d --session web "a; b") && stint wait --any $id # --nope`: true, `X=1 stint ls --nope`: false, `stint nope`: false,
		`stint ls | stint wait --nope`: false, `go run ./cmd/stint ls`: true, `echo "stint nope"`: true,
	} {
		if err := commandsExist(line); (err == nil) != want {
			t.Errorf("%s: %v", line, err)
		}
	}
}
