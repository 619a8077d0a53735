package demo

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"stint/coordinator/agent"
	"stint/coordinator/agent/codex"
	"stint/coordinator/task"
	"stint/ledger/durable"
)

// forever is longer than any process lives.
const forever = time.Duration(math.MaxInt64)

// envHome names the directory of the demo agent's sessions and log.
const envHome = "STINT_DEMO_HOME"

// Main is the hidden subcommand demo-agent: a stand-in for codex exec. args is what follows the subcommand
// (exec --json [-C DIR] [resume ID] -), env reads a variable of the environment. It returns the exit code.
//
// It answers with the first line of the user's message, the number of the turn, and what was said before in
// the session; at first also with how many files and lines the workspace has. Words in the message tell it to
// do something else: see `stint help agents`.
//
// Where an answer must follow a schema (--output-schema) it is the JSON object of an evaluator who has nothing to say, unless
// demo:say has another. Every execution is noted in log.jsonl in its home, at its start and at its end.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer, env func(string) string) int {
	d := &demo{out: json.NewEncoder(stdout), env: env, home: env(envHome)}
	d.turnUse = codex.Usage{Input: 110, Cached: 40, Output: 21, Reasoning: 5}
	code, err := d.main(args, stdin)
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "Error: %v\n", err) // there is nowhere else to say it
		return 1
	}
	return code
}

// A demo is one execution of the demo agent.
type demo struct {
	out    *json.Encoder
	err    error // of the first event that could not be written
	env    func(string) string
	home   string
	dir    string // workspace
	resume string // session to go on with
	schema string // that the answer must follow; "": none

	thread  *os.File    // its memory of the session, locked
	said    []string    // the user's messages before this one
	spent   codex.Usage // by the turns of the session that ended well
	turnUse codex.Usage // by this one
	message string
	items   int

	answer []string // set by demo:say
	empty  bool
	hang   bool
}

// A threadLine is one message in the file of a session.
type threadLine struct {
	Role  string       `json:"role"`
	Text  string       `json:"text"`
	Usage *codex.Usage `json:"usage,omitempty"` // of the turn, with its answer
}

func (d *demo) main(args []string, stdin io.Reader) (code int, err error) {
	if err := d.parse(args); err != nil {
		return 0, err
	}
	if err := durable.MkdirAll(durable.OS, filepath.Join(d.home, "threads")); err != nil {
		return 0, err
	}
	if err := d.log("start"); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, d.log("stop")) }()
	prompt, err := io.ReadAll(stdin)
	if err != nil {
		return 0, err
	}
	text := string(prompt)
	if _, own, ok := strings.Cut("\n"+text, "\n## User message\n"); ok { // the user's own words
		text = own
	}
	d.message = strings.TrimSpace(text)
	id, err := d.open()
	if err != nil {
		return 0, err
	}
	code = d.turn(id)
	return code, errors.Join(d.err, d.thread.Close())
}

// parse reads the few options that the adapter uses.
func (d *demo) parse(args []string) error {
	if len(args) == 0 || args[0] != "exec" || d.home == "" {
		return errors.New("the demo agent is started by stint: demo-agent exec --json -, with " + envHome)
	}
	d.dir = "."
	for i := 1; i+1 < len(args); i++ {
		if value := map[string]*string{"-C": &d.dir, "resume": &d.resume, "--output-schema": &d.schema}[args[i]]; value != nil {
			i++
			*value = args[i]
		}
	}
	return nil
}

// open opens the session's memory, a new one or the one to resume, and notes the
// message in it. Its errors are codex's, word for word.
func (d *demo) open() (id string, err error) {
	id, flag := d.resume, os.O_RDWR|os.O_APPEND
	anew := slices.ContainsFunc(directives(d.message), func(w directive) bool { return w.name == "newthread" })
	if id == "" || anew {
		id, flag = uuid.Must(uuid.NewV7()).String(), flag|os.O_CREATE|os.O_EXCL // Go's random numbers never fail
	}
	name := filepath.Join(d.home, "threads", filepath.Base(id)+".jsonl")
	if d.thread, err = durable.Open(name, flag, durable.FileMode); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			err = fmt.Errorf("thread/resume: thread/resume failed: no rollout found for thread id %s (code -32600)", id)
		}
		return "", err
	}
	if held, _ := durable.TryLock(d.thread); !held {
		return "", errors.Join(fmt.Errorf("thread/resume: thread/resume failed: thread %s already has an active writer (code -32600)", id), d.thread.Close())
	}
	if err := d.recall(); err != nil {
		return "", errors.Join(err, d.thread.Close())
	}
	if last := len(d.said) - 1; d.message == task.GoOn && last >= 0 {
		d.message, d.said = d.said[last], d.said[:last] // the turn that broke off goes on
		return id, nil
	}
	return id, json.NewEncoder(d.thread).Encode(threadLine{Role: "user", Text: d.message})
}

func (d *demo) recall() error {
	dec := json.NewDecoder(d.thread)
	for {
		var l threadLine
		err := dec.Decode(&l)
		if err != nil { // the end, or a line that a kill has cut
			_, err = d.thread.Seek(0, io.SeekEnd)
			return err
		}
		if l.Role == "user" {
			d.said = append(d.said, l.Text)
		}
		if l.Usage != nil {
			d.spent.Add(*l.Usage)
		}
	}
}

// turn speaks codex's events from the first to the last, and returns the exit code. Like codex it counts over the whole
// session, and only the turns that ended well.
func (d *demo) turn(id string) int {
	d.emit("thread.started", event{"thread_id": id})
	d.emit("turn.started", event{})
	for _, w := range directives(d.message) {
		end, err := d.do(w)
		if err != nil {
			end = &ending{1, err.Error()}
		}
		if end != nil && end.msg != "" {
			d.emit("error", event{"message": end.msg})
			d.emit("turn.failed", event{"error": event{"message": end.msg}})
		}
		if end != nil {
			return end.code
		}
	}
	answer := threadLine{Role: "agent", Usage: &d.turnUse}
	if !d.empty {
		answer.Text = d.text()
		d.item("agent_message", event{"text": answer.Text})
	}
	d.spent.Add(d.turnUse)
	d.err = cmp.Or(d.err, json.NewEncoder(d.thread).Encode(answer))
	d.emit("turn.completed", event{"usage": d.spent})
	if d.hang {
		time.Sleep(forever)
	}
	return 0
}

func (d *demo) text() string {
	if len(d.answer) > 0 {
		return strings.Join(d.answer, "\n")
	}
	if d.schema != "" {
		return `{"findings":[],"lessons":[]}`
	}
	text := fmt.Sprintf("turn %d", len(d.said)+1)
	if len(d.said) == 0 && len(directives(d.message)) == 0 {
		text = lookAround(d.dir) + text
	}
	if len(d.said) > 0 {
		var earlier []string
		for _, s := range d.said {
			earlier = append(earlier, firstLine(s))
		}
		text += "; earlier: " + strings.Join(earlier, " | ")
	}
	return text + "; you said: " + firstLine(d.message)
}

// lookAround returns how many files and lines a directory has, of its first 200 entries.
func lookAround(dir string) string {
	entries, _ := os.ReadDir(dir) // what cannot be read is not counted
	files, lines := 0, 0
	for _, e := range entries[:min(len(entries), 200)] {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && info.Size() <= 1<<20 {
			data, _ := os.ReadFile(filepath.Join(dir, e.Name()))
			files, lines = files+1, lines+bytes.Count(data, []byte("\n"))
		}
	}
	return fmt.Sprintf("I am the demo agent that is built into stint: I do not think, but I can count.\n"+
		"%s has %d entries; its %d files have %d lines.\n", filepath.Base(dir), len(entries), files, lines)
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return strings.TrimSpace(line)
}

// An event has the keys of one that codex prints.
type event map[string]any

func (d *demo) emit(kind string, e event) {
	e["type"] = kind
	d.err = cmp.Or(d.err, d.out.Encode(e))
}

func (d *demo) item(kind string, e event) {
	e["id"], e["type"] = fmt.Sprintf("item_%d", d.items), kind
	d.items++
	d.emit("item.completed", event{"item": e})
}

func (d *demo) log(what string) error {
	return durable.AppendLine(durable.OS, filepath.Join(d.home, "log.jsonl"), event{
		"event": what, "task": d.env(agent.EnvTaskID), "run": d.env(agent.EnvRunID), "pid": os.Getpid(), "time": time.Now().UnixNano(), // ns
	}, false)
}
