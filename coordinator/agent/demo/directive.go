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
	"stint/ledger/durable"
)

// A directive is one demo:NAME or demo:NAME=VALUE of a message.
type directive struct{ name, value string }

// directives finds them in the order in which they stand. The value of say and
// write is the rest of the line, of the others the rest of the word.
func directives(message string) []directive {
	var found []directive
	for line := range strings.Lines(message) {
		if strings.HasPrefix(line, "> ") {
			continue
		}
		for rest := strings.TrimRight(line, "\r\n"); rest != ""; {
			word, after, _ := strings.Cut(strings.TrimLeft(rest, " \t"), " ")
			text, is := strings.CutPrefix(word, "demo:")
			if !is {
				rest = after
				continue
			}
			name, value, _ := strings.Cut(text, "=")
			if name == "say" || name == "write" {
				_, value, _ = strings.Cut(strings.TrimLeft(rest, " \t"), "=")
				after = ""
			}
			found = append(found, directive{name, value})
			rest = after
		}
	}
	return found
}

// An ending ends the turn with an exit code; with a message the turn fails.
type ending struct {
	code int
	msg  string
}

// do runs one directive. One that is not known is only a word.
func (d *demo) do(w directive) (*ending, error) {
	switch w.name {
	case "sleep":
		wait, err := seconds(w.value)
		time.Sleep(wait)
		return nil, err
	case "lines":
		return nil, d.printLines(w.value)
	case "usage":
		d.turnUse = tokenCount{}
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
		sleepForever()
	case "hang-after":
		d.hang = true
	case "empty":
		d.empty = true
	default:
		return d.trouble(w)
	}
	return nil, nil
}

// trouble runs the directives that end the turn badly.
func (d *demo) trouble(w directive) (*ending, error) {
	var end ending
	name, first := strings.CutSuffix(w.name, "-first")
	switch name {
	case "fail":
		end = ending{1, "the demo agent was told to fail"}
	case "crash":
		end = ending{3, ""}
	case "429":
		end = ending{1, "exceeded retry limit, last status: 429 Too Many Requests, request id: demo"}
		if w.value != "" {
			wait, err := seconds(w.value)
			if err != nil {
				return nil, err
			}
			end.msg = fmt.Sprintf("You’ve hit your usage limit. Try again in %v.", wait)
		}
	case "401":
		end = ending{1, "unexpected status 401 Unauthorized: the demo agent was told so"}
	case "500":
		end = ending{1, "We’re currently experiencing high demand, which may cause temporary errors."}
	default:
		return nil, nil
	}
	if first {
		if again, err := d.again(name); again || err != nil {
			return nil, err
		}
	}
	return &end, nil
}

// again reports whether that happened to this task before, and notes that it happens now.
func (d *demo) again(name string) (bool, error) {
	task := d.env(agent.EnvTaskID)
	if task == "" {
		return d.env(agent.EnvAttempt) > "1", nil
	}
	dir := filepath.Join(d.home, "first")
	if err := durable.MkdirAll(durable.OS, dir); err != nil {
		return false, err
	}
	f, err := durable.Open(filepath.Join(dir, name+"-"+url.QueryEscape(task)), os.O_CREATE|os.O_EXCL, durable.FileMode)
	if errors.Is(err, os.ErrExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return false, f.Close()
}

func (d *demo) printLines(value string) error {
	n, err := strconv.Atoi(value)
	if err != nil {
		return fmt.Errorf("demo:lines needs a number: %w", err)
	}
	for i := range n {
		if err := d.item("reasoning", event{"text": fmt.Sprintf("line %d of %d", i+1, n)}); err != nil {
			return err
		}
	}
	return nil
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
	if parent := filepath.Dir(path); parent != "." {
		err = root.MkdirAll(parent, 0o755)
	}
	if err == nil {
		err = root.WriteFile(path, []byte(text+"\n"), 0o644)
	}
	if err = errors.Join(err, root.Close()); err != nil {
		return err
	}
	change := map[string]string{"path": filepath.Join(d.dir, path), "kind": "add"}
	return d.item("file_change", event{"changes": []any{change}, "status": "completed"})
}

// seconds reads "2s", "500ms" or plain seconds.
func seconds(s string) (time.Duration, error) {
	if n, err := strconv.ParseFloat(s, 64); err == nil {
		return time.Duration(n * float64(time.Second)), nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("%q is no time: use 2s or 500ms", s)
	}
	return d, nil
}
