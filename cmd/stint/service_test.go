package main

import (
	"context"
	"encoding/xml"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// hostile are values that a format may read otherwise than they are.
var hostile = map[string]string{
	"PATH":             "/usr/bin:/a b/\"q\"/'s'/%h/%%/$HOME/${X}/\\n/<&>/é/日本\t:\n/next ]]>",
	"STINT_STATE_DIR":  "/state # x ; y",
	"STINT_LOG_FORMAT": "-->",
}

// TestUnit: the unit of systemd, as it stands, and what systemd reads in it.
func TestUnit(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "a b $x %h é", "stint")
	must(t, os.MkdirAll(filepath.Dir(program), 0o700))
	must(t, os.WriteFile(program, []byte("#!/bin/sh\n"), 0o700))
	s, err := serviceOf("systemd")
	must(t, err)
	text, err := s.text(program, hostile, 53*time.Second)
	must(t, err)
	want := `# written by stint service install; stint service uninstall removes it
[Unit]
Description=stint, which runs queued tasks of coding agents

[Service]
Type=exec
ExecStart="` + strings.ReplaceAll(program, "%", "%%") + `" serve
Environment="PATH=/usr/bin:/a b/\"q\"/'s'/%%h/%%%%/$HOME/${X}/\\n/<&>/é/日本\t:\n/next ]]>"
Environment="STINT_LOG_FORMAT=-->"
Environment="STINT_STATE_DIR=/state # x ; y"
Restart=on-failure
RestartSec=10
KillMode=mixed
TimeoutStopSec=53
OOMPolicy=continue

[Install]
WantedBy=default.target
`
	if text != want {
		t.Errorf("%s\nwant:\n%s", text, want)
	}
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	dir := t.TempDir()
	for _, level := range []string{"info", "debug"} {
		cmd := exec.Command("systemd-analyze", "--user", "verify", put(t, filepath.Join(dir, "stint.service"), text))
		cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_RUNTIME_DIR="+dir, "XDG_CONFIG_HOME="+dir, "SYSTEMD_LOG_TARGET=console", "SYSTEMD_LOG_LEVEL="+level)
		out, err := cmd.CombinedOutput()
		if err != nil || level == "info" && strings.Contains(string(out), "stint.service") {
			t.Fatalf("%v: %s", err, out)
		}
		if level == "info" {
			continue
		}
		for name, value := range hostile {
			if !strings.Contains(string(out), "\tEnvironment: "+name+"="+value+"\n") {
				t.Errorf("systemd reads another %s in %s", name, out)
			}
		}
		if !strings.Contains(string(out), "\tCommand Line: \""+strings.ReplaceAll(program, "$", `\$`)+"\" serve\n") {
			t.Errorf("systemd reads another program in %s", out)
		}
	}
}

// TestPlist: what a parser reads in the agent of launchd.
func TestPlist(t *testing.T) {
	t.Parallel()
	s, err := serviceOf("launchd")
	must(t, err)
	program := "/a b/<$&%é>/stint"
	text, err := s.text(program, hostile, 53*time.Second)
	must(t, err)
	var doc struct {
		XMLName xml.Name
		Dict    struct {
			Keys    []string `xml:"key"`
			Strings []string `xml:"array>string"`
			Dict    []struct {
				Keys   []string `xml:"key"`
				Values []string `xml:"string"`
			} `xml:"dict"`
			Stop []int `xml:"integer"`
		} `xml:"dict"`
	}
	must(t, xml.Unmarshal([]byte(text), &doc))
	env := map[string]string{}
	for i, name := range doc.Dict.Dict[0].Keys {
		env[name] = doc.Dict.Dict[0].Values[i]
	}
	keys := "Label ProgramArguments EnvironmentVariables RunAtLoad KeepAlive ThrottleInterval ExitTimeOut"
	if doc.XMLName.Local != "plist" || strings.Join(doc.Dict.Keys, " ") != keys || !slices.Equal(doc.Dict.Strings, []string{program, "serve"}) || !maps.Equal(env, hostile) || doc.Dict.Stop[1] != 53 {
		t.Errorf("%+v", doc)
	}
}

// TestServiceRefuses: what neither format can carry is an error, and no other value.
func TestServiceRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ program, value string }{{"/x\ny/stint", ""}, {`/a"b/stint`, ""}, {"/stint", "\xff"}, {"/stint", "\x1b[m"}, {"/stint", "a\rb"}} {
		if text, err := (&service{format: "systemd"}).text(c.program, map[string]string{"TZ": c.value}, 0); err == nil {
			t.Errorf("%q: %s", c, text)
		}
	}
}

// awakeScript is a program that does what those do that hold a machine awake, and writes that down.
func awakeScript(said string) string {
	return "#!/bin/sh\necho held >>" + said + "\nwhile [ \"${1#-}\" != \"$1\" ]; do shift; done\n\"$@\"\necho freed >>" + said + "\n"
}

// TestKeepAwake: the machine is held awake while it is needed, from the change that makes it
// needed on, and no longer; a program that fails or is missing is logged once.
func TestKeepAwake(t *testing.T) {
	dir := t.TempDir()
	said := filepath.Join(dir, "said")
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	program := filepath.Join(dir, strings.Fields(awakeCommand)[0])
	must(t, os.WriteFile(program, []byte(awakeScript(said)), 0o700))
	logged, err := os.Create(filepath.Join(dir, "log"))
	must(t, err)
	var needed atomic.Bool
	begin := func() (end func()) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			keepAwake(ctx, time.Millisecond, needed.Load, slog.New(slog.NewTextHandler(logged, nil)))
		}()
		return func() { cancel(); <-done }
	}
	end := begin()
	for i, want := range []string{"held\n", "held\nfreed\n", "held\nfreed\nheld\n"} {
		needed.Store(i%2 == 0)
		if !poll(scriptDeadline, func() bool { text, _ := os.ReadFile(said); return string(text) == want }) {
			t.Fatalf("%q, want %q", get(t, said), want)
		}
	}
	end()
	if got := string(get(t, said)); got != "held\nfreed\nheld\nfreed\n" {
		t.Errorf("%q after the end", got)
	}
	must(t, os.WriteFile(program, []byte("#!/bin/sh\necho no bus >&2\necho failed >>"+said+"\n"), 0o700))
	end = begin()
	if !poll(scriptDeadline, func() bool { return strings.Count(string(get(t, said)), "failed") > 2 }) {
		t.Error("it is not tried again")
	}
	end()
	if text := string(get(t, logged.Name())); strings.Count(text, "no bus") != 1 || strings.Count(text, "\n") != 1 {
		t.Errorf("log: %s", text)
	}
	must(t, logged.Close())
}

// TestAwakeEndsWithMaster: what holds the machine awake ends when the master is killed.
func TestAwakeEndsWithMaster(t *testing.T) {
	if os.Getenv("STINT_TEST_AWAKE") != "" {
		_ = holdAwake(t.Context())
		return
	}
	dir := t.TempDir()
	said := filepath.Join(dir, "said")
	must(t, os.WriteFile(filepath.Join(dir, strings.Fields(awakeCommand)[0]), []byte(awakeScript(said)), 0o700))
	self, err := os.Executable()
	must(t, err)
	cmd := exec.Command(self, "-test.run=^TestAwakeEndsWithMaster$")
	cmd.Env = append(os.Environ(), "STINT_TEST_AWAKE=yes", "PATH="+dir+":"+os.Getenv("PATH"))
	must(t, cmd.Start())
	has := func(word string) func() bool {
		return func() bool { text, _ := os.ReadFile(said); return strings.Contains(string(text), word) }
	}
	if !poll(scriptDeadline, has("held")) {
		t.Error("it does not begin")
	}
	must(t, cmd.Process.Signal(syscall.SIGKILL))
	_ = cmd.Wait()
	if !poll(scriptDeadline, has("freed")) {
		t.Error("it goes on without its master")
	}
}
