// Command stint queues tasks for coding agents, runs them and keeps their answers.
//
// This package is the only one that reads the command line, the environment and the configuration, and it
// wires the others together. Results go to stdout, everything else to stderr; exit.go has the exit codes.
package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"stint/coordinator/agent/demo"
	"stint/coordinator/agent/gate/hold"
	"stint/state"
)

func main() { os.Exit(run(os.Args[1:])) }

// run runs one command line and returns the exit code.
func run(args []string) int {
	// The two programs that a master starts for each run come first: they need nothing of what follows.
	if len(args) > 0 {
		switch args[0] {
		case "gate":
			return hold.Main(os.Stdin, os.Stdout)
		case demo.Command:
			return demo.Main(args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv)
		}
	}
	// The first Ctrl-C ends the context with errDetached. The second one ends the program: by then nobody listens any more.
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	signal.Notify(signals, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as nohup has it
		signal.Notify(signals, syscall.SIGHUP) // what is half done is put back
	}
	go func() { // ends with the program
		select {
		case <-interrupts:
		case <-signals:
		}
		signal.Stop(interrupts)
		signal.Stop(signals)
		cancel(errDetached)
	}()
	a := &app{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}
	root, help := a.rootCommand(args), bufio.NewWriterSize(os.Stdout, 64<<10) // all of it, so that cobra sees no error
	root.SetOut(help)
	err := root.ExecuteContext(ctx)
	err = cmp.Or(err, help.Flush()) // which cobra would only print
	if cli, ok := errors.AsType[*cliError](err); ok && a.configOption != "" {
		cli.try = strings.Replace(cli.try, "stint config ", "stint --config "+state.ShellQuote(a.configOption)+" config ", 1)
	}
	printError(os.Stderr, err)
	if a.atEnd != nil {
		a.atEnd()
	}
	return exitCode(err)
}

// version is set by a release build with -ldflags "-X main.version=v1.2.3".
var version string

// versionName returns the version: of the release, or what Go has made of module and commit.
func versionName() string {
	info, ok := debug.ReadBuildInfo()
	switch {
	case version != "":
		return version
	case !ok:
		return "unknown"
	}
	return strings.Trim(cmp.Or(info.Main.Version, "devel"), "()")
}

func (a *app) versionCommand() *cobra.Command {
	return a.withJSON(command("version", "print the version", cobra.NoArgs, func(*cobra.Command, []string) error {
		platform := runtime.GOOS + "/" + runtime.GOARCH
		text := fmt.Sprintf("stint %s (%s, %s)", versionName(), runtime.Version(), platform)
		return a.print(map[string]string{"version": versionName(), "go": runtime.Version(), "platform": platform}, text)
	}))
}
