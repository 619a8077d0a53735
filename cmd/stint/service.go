package main

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"text/template"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/ledger/durable"
	"stint/state"
)

// serviceMark stands in each file that install has written.
const serviceMark = "written by stint service install; stint service uninstall removes it"

// A service is how a system is told to run a master, and the shell commands for that.
type service struct {
	format, file        string
	start, stop, active string // start also starts it anew; active prints the state, and fails if it does not run
	lingers             string // fails if it ends with the user's last session
}

// serviceOf returns the service of a format: systemd or launchd.
func serviceOf(format string) (*service, error) {
	if format == "launchd" {
		home, err := os.UserHomeDir()
		file, domain := filepath.Join(home, "Library", "LaunchAgents", "stint.plist"), "gui/"+strconv.Itoa(os.Getuid())
		stop := "launchctl bootout " + domain + "/stint"
		return &service{format, file, stop + " 2>/dev/null; launchctl bootstrap " + domain + " " + state.ShellQuote(file), stop, "launchctl print " + domain + "/stint", "true"}, err
	}
	dir, err := xdg("XDG_CONFIG_HOME", ".config")
	file, user := filepath.Join(dir, "systemd", "user", "stint.service"), "systemctl --user "
	start := user + "daemon-reload && " + user + "enable stint.service && " + user + "restart stint.service"
	return &service{format, file, start, user + "disable --now stint.service", user + "is-active stint.service", `test -e "/var/lib/systemd/linger/$(id -un)"`}, err
}

const isMac = runtime.GOOS == "darwin"

const enableLinger = "loginctl enable-linger"

// serviceFormat is the format of this system.
var serviceFormat = map[bool]string{true: "launchd", false: "systemd"}[isMac]

//go:embed service/*.tmpl
var serviceTexts embed.FS

// serviceFiles are the files of service/, by their formats. They harden nothing: agents build, install and
// start what their tasks need. stint ends its runs by itself, and one that the kernel ends for
// its memory is no reason to end the others. Between the quotes of the unit, $ is no variable.
var serviceFiles = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{
		"unit": strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`, "%", "%%").Replace,
	}).ParseFS(serviceTexts, "service/*.tmpl"))
})

// text returns the file of the service, by which it runs that program with that environment.
func (s *service) text(program string, env map[string]string, stopTime time.Duration) (string, error) {
	isBad := func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }
	for name, value := range env {
		if !utf8.ValidString(value) || strings.ContainsFunc(value, isBad) {
			return "", usage("export "+name+"=...", "%s has characters that %s does not take: %q", name, s.format, value)
		}
	}
	if !utf8.ValidString(program) || strings.ContainsFunc(program, unicode.IsControl) || strings.ContainsAny(program, `\"'`) {
		return "", usage("install stint in another directory", "%s runs no program with such a path: %q", s.format, program)
	}
	var b strings.Builder
	err := serviceFiles().ExecuteTemplate(&b, s.format+".tmpl", map[string]any{"Mark": serviceMark, "Program": program, "Env": env, "StopSeconds": int(stopTime.Seconds())})
	return b.String(), err
}

// textHere returns the file of the service for this shell.
func (s *service) textHere(a *app) (string, error) {
	program, err := os.Executable()
	cfg, cfgErr := a.base()
	dir, dirErr := a.state()
	file, isNamed, fileErr := configFile(a.configOption)
	if err := errors.Join(err, cfgErr, dirErr, fileErr); err != nil {
		return "", err
	}
	if _, err := os.Stat(program); err != nil || strings.Contains(program, "/go-build") {
		return "", usage("go install ./cmd/stint, and with that one: stint service install", "no service can run this program, which is temporary or was removed: %s", program)
	}
	env := map[string]string{}
	for _, kv := range os.Environ() {
		name, value, _ := strings.Cut(kv, "=")
		isSetting := func(k key) bool { return k.env() == name && k.redact == nil }
		if slices.Contains(strings.Fields("PATH TZ XDG_CONFIG_HOME XDG_DATA_HOME XDG_STATE_HOME STINT_STATE_DIR"), name) || slices.ContainsFunc(keys, isSetting) {
			env[name] = value
		}
	}
	if a.stateOption != "" {
		env["STINT_STATE_DIR"] = dir
	}
	if isNamed {
		env["STINT_CONFIG"] = file
	}
	return s.text(program, env, queue.EndLimit(cfg.Grace)+closeLimit+hurryLimit)
}

// installed reports whether the file of the service is there; the error is that stint has not written it.
func (s *service) installed() (bool, error) {
	text, err := durable.ReadFile(durable.OS, s.file)
	if errors.Is(err, fs.ErrNotExist) || err == nil && bytes.Contains(text, []byte(serviceMark)) {
		return err == nil, nil
	}
	return true, &cliError{code: exitFailure, message: s.file + " was not written by stint and is left alone", try: "look at it; to replace it: stint service install --force"}
}

// system runs a systemCommand and returns what it has printed, which the error has too.
func system(ctx context.Context, command string) (said string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	out, err := systemCommand(ctx, command).CombinedOutput()
	if said = oneLine(string(out)); err != nil {
		err = fmt.Errorf("%w: %s", err, said)
	}
	return said, err
}

// systemCommand returns a shell command that finds the programs of the system alone.
func systemCommand(ctx context.Context, command string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	cmd.Env = append(os.Environ(), "PATH="+task.SafePath(os.Environ(), ""))
	return cmd
}

func (a *app) serviceCommand() *cobra.Command {
	var print, force, linger bool
	leaf := func(use, short string, do func(context.Context, *service) error) *cobra.Command {
		return &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error {
			s, err := serviceOf(serviceFormat)
			if err == nil {
				err = do(c.Context(), s)
			}
			return err
		}}
	}
	install := leaf("install [OPTIONS]", "write the file of the service, and start it", func(ctx context.Context, s *service) error {
		text, err := s.textHere(a)
		switch {
		case err != nil:
			return err
		case print:
			return printText(a.stdout, text)
		case linger:
			s.start = enableLinger + " && " + s.start
		}
		if _, err := s.installed(); err != nil && !force {
			return err
		}
		if err := errors.Join(durable.MkdirAll(durable.OS, filepath.Dir(s.file)), durable.WriteFile(durable.OS, s.file, []byte(text))); err != nil {
			return err
		}
		if _, err := system(ctx, s.lingers); err != nil && !strings.Contains(s.start, enableLinger) {
			a.hint("stint: the service ends with your last session and starts with the next one; to have it run from boot on: %s\n", enableLinger)
		}
		if _, err := system(ctx, s.start); err != nil {
			return &cliError{code: exitFailure, message: s.file + " is written, but whether the service runs could not be seen: " + err.Error(), try: s.start + "; where no systemd or launchd runs: @reboot stint serve in crontab -e"}
		}
		return printText(a.stdout, s.file)
	})
	install.Flags().BoolVar(&print, "print", false, "print the file, and do nothing else")
	install.Flags().BoolVar(&force, "force", false, "replace a file that stint has not written")
	install.Flags().BoolVar(&linger, "linger", false, "on Linux: run it from boot on, without a session of yours")
	status := leaf("status", "print whether the service is installed and runs", func(ctx context.Context, s *service) error { return a.printFindings(s.examine(ctx)) })
	uninstall := leaf("uninstall", "stop the service and remove its file", func(ctx context.Context, s *service) error {
		isThere, err := s.installed()
		if !isThere {
			a.hint("stint: no service is installed at %s\n", s.file)
		}
		if !isThere || err != nil {
			return err
		}
		_, stopErr := system(ctx, s.stop)
		link := filepath.Join(filepath.Dir(s.file), "default.target.wants", filepath.Base(s.file)) // what has enabled it, where systemctl could not remove it
		if err := errors.Join(durable.Drop(durable.OS, link), durable.Drop(durable.OS, s.file)); err != nil || stopErr == nil {
			return err
		}
		return &cliError{code: exitFailure, message: "the file is removed, but whether its master has ended could not be seen: " + stopErr.Error(), try: "stint serve --stop"}
	})
	return group(command("service", "have the system run the master, also after a reboot", nil, nil),
		a.noRun(install), a.withJSON(status), a.noRun(uninstall))
}

// examine looks at the service as it is installed.
func (s *service) examine(ctx context.Context) []finding {
	isThere, err := s.installed()
	switch {
	case !isThere:
		return []finding{{"service", healthOK, "not installed: after a reboot nothing runs until a command starts a master (stint service install)", ""}}
	case err != nil:
		return []finding{failed("service", healthWarn, err)}
	}
	f := finding{"service", healthOK, "active, by " + s.file, ""}
	if said, err := system(ctx, s.active); err != nil {
		f = finding{"service", healthWarn, s.file + " is written by stint, but does not run as far as can be seen here: " + said, s.start}
	}
	if _, err := system(ctx, s.lingers); err == nil {
		return []finding{f}
	}
	return []finding{f, {"linger", healthWarn, "the service ends with your last session and starts with the next one", enableLinger}}
}

// How long before something is due the machine is held awake, and how often it is asked whether it is to be.
const awakeAhead, awakePace = 5 * time.Minute, 10 * time.Second

// awakeCommand is what holds this machine awake while another program runs.
var awakeCommand = map[bool]string{true: "caffeinate -i", false: `systemd-inhibit --what=idle:sleep --who=stint --why="tasks run or are due" --mode=block`}[isMac]

// keepAwake holds the machine awake while isNeeded says so, until ctx ends. That it cannot is logged once.
func keepAwake(ctx context.Context, pace time.Duration, isNeeded func() bool, log *slog.Logger) {
	for told := false; ctx.Err() == nil; _ = task.Sleep(ctx, pace) {
		if !isNeeded() {
			continue
		}
		hold, release := context.WithCancel(ctx)
		stop := inBackground(hold, func(ctx context.Context) {
			for task.Sleep(ctx, pace) == nil && isNeeded() {
			}
			release()
		})
		if err := holdAwake(hold); hold.Err() == nil {
			if !told {
				log.Warn("keep_awake has no effect", "error", err)
			}
			told = true
			_ = task.Sleep(ctx, 6*pace) // it will hardly work at once
		}
		stop()
	}
}

// holdAwake holds the machine awake until ctx ends, and returns why it could not. What does that
// lasts as long as cat can read, so it ends with us, however we end.
func holdAwake(ctx context.Context) error {
	cmd := systemCommand(ctx, "exec "+awakeCommand+" cat")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the master alone
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	cmd.Cancel, cmd.WaitDelay = in.Close, time.Second
	said, err := cmd.CombinedOutput()
	return fmt.Errorf("it has ended (%v): %s", err, oneLine(string(said)))
}
