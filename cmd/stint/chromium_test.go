package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// chromiumNames are what Chromium is called, the usual names first.
var chromiumNames = []string{"chromium", "chromium-browser", "google-chrome"}

// findChromium returns the path of a Chromium; without one the test ends.
func findChromium(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("STINT_TEST_CHROMIUM"); path != "" {
		return path
	}
	for _, name := range chromiumNames {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	missing(t, "there is no Chromium: install the package chromium, or set STINT_TEST_CHROMIUM")
	return ""
}

// chromiumDeadline is how long a test waits for what a page is to become.
const chromiumDeadline = 90 * time.Second

// A tab is one tab of a headless Chromium, and what went on in it.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	dialogs  []string // guarded by mu, like what follows
	requests []string // URLs
	blocked  []string // what a page's policy has refused
	errors   []string // exceptions of scripts, and what the console told of as errors
}

// newBrowser starts a Chromium that takes evil.example for this machine, and ends it
// with the test.
func newBrowser(t *testing.T) context.Context {
	t.Helper()
	notShort(t)
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(findChromium(t)),
		chromedp.UserDataDir(filepath.Join(t.TempDir(), "chromium")),
		chromedp.Flag("host-resolver-rules", "MAP evil.example 127.0.0.1"),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-quic", true),
		chromedp.DisableGPU,
		chromedp.WindowSize(1280, 900),
	)
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	return ctx
}

// newTab opens a tab in a browser.
func newTab(t *testing.T, browser context.Context, options ...chromedp.ContextOption) *tab {
	t.Helper()
	b := &tab{t: t}
	ctx, cancel := chromedp.NewContext(browser, append(options, chromedp.WithListener(b.note))...)
	t.Cleanup(cancel)
	b.ctx = ctx
	err := chromedp.Do(ctx, chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error { // the tab lasts as long as the context of what is done first
		_, err := chromedp.Call(ctx, audits.Enable, cdp.Empty{})
		return err
	}))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// note notes what happens in the tab.
func (b *tab) note(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *page.EventJavascriptDialogOpening:
		b.dialogs = append(b.dialogs, e.Message)
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, e.Request.URL)
	case *audits.EventIssueAdded:
		text, _ := json.Marshal(e.Issue) // for the message alone
		b.blocked = append(b.blocked, string(text))
	case *log.EventEntryAdded:
		if e.Entry.Level != log.EntryLevelInfo {
			b.errors = append(b.errors, e.Entry.Text)
		}
	case *runtime.EventExceptionThrown:
		b.errors = append(b.errors, e.ExceptionDetails.Text)
	}
}

// do carries out actions, in time.
func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, chromiumDeadline)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// open goes to an address, and waits until what it leads to is loaded: our page may go
// on from there by itself.
func (b *tab) open(address string) {
	b.t.Helper()
	b.do(chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, page.Navigate, page.NavigateParams{URL: address})
		return err
	}))
	b.await("loaded", "document.readyState === 'complete'")
}

// eval returns what a piece of JavaScript gives, awaited if it is a promise.
func eval[T any](b *tab, script string) T {
	b.t.Helper()
	v, err := tryEval[T](b, script)
	if err != nil {
		b.t.Fatalf("%s: %v", script, err)
	}
	return v
}

func tryEval[T any](b *tab, script string) (T, error) {
	ctx, cancel := context.WithTimeout(b.ctx, chromiumDeadline)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
}

// eval carries out a piece of JavaScript.
func (b *tab) eval(script string) {
	b.t.Helper()
	eval[any](b, script)
}

// await waits until a piece of JavaScript gives true. While the page goes on to another
// one it gives an error.
func (b *tab) await(what, script string) {
	b.t.Helper()
	var last error
	if !poll(chromiumDeadline, func() (holds bool) {
		holds, last = tryEval[bool](b, script)
		return holds && last == nil
	}) {
		b.t.Fatalf("never: %s (%v); the page is\n%s", what, last, eval[string](b, "document.documentElement.outerHTML"))
	}
}

// expectNothingBad: no dialog, no request to anywhere but base, nothing that the page's
// policy has refused, and no errors but those that have a text.
func (b *tab) expectNothingBad(base, but string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, request := range b.requests {
		if !strings.HasPrefix(request, base+"/") {
			b.t.Errorf("a request to %s", request)
		}
	}
	for _, e := range b.errors {
		if !strings.Contains(e, but) {
			b.t.Errorf("an error: %s", e)
		}
	}
	if len(b.dialogs)+len(b.blocked) > 0 {
		b.t.Errorf("dialogs %q, refused %q", b.dialogs, b.blocked)
	}
	if len(b.requests) == 0 {
		b.t.Error("no request was seen")
	}
}
