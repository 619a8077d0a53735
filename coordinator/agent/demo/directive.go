package demo

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"stint/coordinator/agent"
	"stint/coordinator/agent/codex"
	"stint/ledger/durable"
	"stint/ledger/lazy"
)

// A directive is one demo:NAME or demo:NAME=VALUE of a message.
type directive struct{ name, value string }

// directiveText finds one in a line. The value of say and write is the rest of the line, of the others the rest of the word.
var directiveText = lazy.Regexp(`(?:^|[ \t])demo:(?:(say|write)=(.*)|([^ \t=]*)=?([^ \t]*))`)

// directives finds them in the order in which they stand.
func directives(message string) []directive {
	var found []directive
	for line := range strings.Lines(message) {
		if strings.HasPrefix(line, "> ") {
			continue
		}
		for _, m := range directiveText().FindAllStringSubmatch(strings.TrimRight(line, "\r\n"), -1) {
			found = append(found, directive{m[1] + m[3], m[2] + m[4]})
		}
	}
	return found
}

// An ending ends the turn with an exit code; with a message the turn fails.
type ending struct {
	code int
	msg  string
}

// endings are the directives that end the turn badly.
var endings = map[string]ending{
	"fail":  {1, "the demo agent was told to fail"},
	"crash": {3, ""},
	"429":   {1, "exceeded retry limit, last status: 429 Too Many Requests, request id: demo"},
	"401":   {1, "unexpected status 401 Unauthorized: the demo agent was told so"},
	"500":   {1, "We’re currently experiencing high demand, which may cause temporary errors."},
}

// do runs one directive. One that is not known is only a word.
func (d *demo) do(w directive) (*ending, error) {
	switch w.name {
	case "sleep":
		wait, err := seconds(w.value)
		time.Sleep(wait)
		return nil, err
	case "lines":
		n, err := strconv.Atoi(w.value)
		if err != nil {
			return nil, fmt.Errorf("demo:lines needs a number: %w", err)
		}
		for i := range n {
			d.item("reasoning", event{"text": fmt.Sprintf("line %d of %d", i+1, n)})
		}
	case "usage":
		d.turnUse = codex.Usage{}
		_, err := fmt.Sscanf(w.value, "%d/%d", &d.turnUse.Input, &d.turnUse.Output)
		return nil, err
	case "say":
		d.answer = append(d.answer, w.value)
	case "write":
		return nil, d.writeFile(w.value)
	case "orphan":
		cmd := exec.Command("/bin/sleep", "3600")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		return nil, cmd.Start()
	case "ignore-term":
		signal.Ignore(syscall.SIGTERM)
	case "hang":
		time.Sleep(forever)
	case "hang-after":
		d.hang = true
	case "empty":
		d.empty = true
	}
	name, first := strings.CutSuffix(w.name, "-first")
	end, known := endings[name]
	if !known {
		return nil, nil
	}
	if first {
		err := os.Mkdir(filepath.Join(d.home, w.name+"-"+url.QueryEscape(d.env(agent.EnvTaskID))), durable.DirMode)
		if errors.Is(err, os.ErrExist) { // it happened to this task before
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
	}
	if name == "429" && w.value != "" {
		wait, err := seconds(w.value)
		return &ending{1, fmt.Sprintf("You’ve hit your usage limit. Try again in %v.", wait)}, err
	}
	return &end, nil
}

// writeFile writes below the workspace and nowhere else.
func (d *demo) writeFile(value string) error {
	path, text, ok := strings.Cut(value, "|")
	if !ok {
		return errors.New("demo:write needs PATH|TEXT")
	}
	root, err := os.OpenRoot(d.dir)
	if err != nil {
		return err
	}
	if err = root.MkdirAll(filepath.Dir(path), 0o755); err == nil {
		err = root.WriteFile(path, []byte(text+"\n"), 0o644)
	}
	if err = errors.Join(err, root.Close()); err != nil {
		return err
	}
	change := map[string]string{"path": filepath.Join(d.dir, path), "kind": "add"}
	d.item("file_change", event{"changes": []any{change}, "status": "completed"})
	return nil
}

// seconds reads "2s", "500ms" or plain seconds.
func seconds(s string) (time.Duration, error) {
	for _, unit := range []string{"", "s"} {
		if d, err := time.ParseDuration(s + unit); err == nil {
			return d, nil
		}
	}
	return 0, fmt.Errorf("%q is no time: use 2s or 500ms", s)
}
