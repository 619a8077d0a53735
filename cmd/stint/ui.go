package main

import (
	"cmp"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"stint/coordinator/api/guard"
	"stint/coordinator/api/wire"
	"stint/ledger/durable"
)

func (a *app) uiCommand() *cobra.Command {
	var print bool
	c := command("ui [OPTIONS]", "open the page in your browser", cobra.NoArgs, func(c *cobra.Command, _ []string) error {
		ctx := c.Context()
		state, err := a.ownState()
		if err != nil {
			return err
		}
		page, err := fetch[wire.PageAddress](ctx, a.call, http.MethodPost, "/v1/ui/code", nil)
		if err != nil {
			return err
		}
		file := filepath.Join(state, "ui.html")
		browser := browserCommand(file)
		if print || browser == nil {
			u, err := url.Parse(page.URL)
			if err != nil {
				return fmt.Errorf("the address of the page: %w", err)
			}
			a.hint("stint: it lets one browser in, once, until %s; if that is on another machine, first: ssh -L %s:%s HOST\n", page.ExpiresAt.Local().Format(time.TimeOnly), u.Port(), "127.0.0.1:"+u.Port())
			return printText(a.stdout, page.URL)
		}
		address := html.EscapeString(page.URL)
		if err := durable.ReplaceFile(durable.OS, file, fmt.Appendf(nil, wayTo, address, address)); err != nil {
			return fmt.Errorf("the way to the page: %w", err)
		}
		browser.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // it outlives us
		if err := browser.Start(); err != nil {
			return &cliError{code: exitFailure, message: "the browser was not opened", err: err, try: "stint ui --print"}
		}
		a.hint("%s", opened(page, isTTY(a.stderr)))
		return nil
	})
	c.Flags().BoolVar(&print, "print", false, "print the address, and open nothing")
	return c
}

// opened returns what to do where a browser shows no page, as one that may not read our file.
// On a terminal that is the address itself; elsewhere stderr may be a file, which outlives it.
func opened(page wire.PageAddress, terminal bool) string {
	if !terminal {
		return "stint: opened in your browser; if you see no page: stint ui --print\n"
	}
	return "stint: opened in your browser; if you see no page, open this, which counts once: " + page.URL + "\n"
}

// wayTo is a file that leads a browser to the page. The address is not to be on a
// command line, which other users of the machine can read.
const wayTo = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url=%s">
<title>stint</title>
<p><a href="%s">Open the page of stint</a>. This counts once, for a minute.</p>
`

// browserCommand returns the command that opens a file in the user's browser; nil without one, or a display.
func browserCommand(file string) *exec.Cmd {
	first, _, _ := strings.Cut(os.Getenv("BROWSER"), ":") // the others are for when it is missing
	if first != "" {
		if !strings.Contains(first, "%s") {
			first += " %s"
		}
		return exec.Command("/bin/sh", "-c", strings.ReplaceAll(first, "%s", `"$1"`), "sh", file)
	}
	if runtime.GOOS == "darwin" {
		return exec.Command("open", file)
	}
	if cmp.Or(os.Getenv("DISPLAY"), os.Getenv("WAYLAND_DISPLAY")) == "" {
		return nil
	}
	if _, err := exec.LookPath("xdg-open"); err != nil {
		return nil
	}
	return exec.Command("xdg-open", file)
}

func (a *app) tokenCommand() *cobra.Command {
	leaf := func(use, short string, do func(file string) error) *cobra.Command {
		return a.noRun(command(use, short, cobra.NoArgs, func(*cobra.Command, []string) error {
			state, err := a.ownState()
			if err != nil {
				return err
			}
			return do(tokenFile(state))
		}))
	}
	return group(command("token", "the token of the HTTP interface: a new one, or for curl", nil, nil), leaf("header", "print the Authorization header", func(file string) error {
		t, err := guard.OpenToken(file)
		if err != nil {
			return err
		}
		text, err := t.Text()
		if err != nil {
			return err
		}
		return printText(a.stdout, "Authorization: Bearer "+text)
	}), leaf("rotate", "replace the token; the old one is no longer valid", func(file string) error {
		if err := guard.RotateToken(file); err != nil {
			return err
		}
		a.hint("stint: the token is a new one; open the page with: stint ui\n")
		return nil
	}))
}
