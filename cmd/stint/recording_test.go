package main

import (
	"flag"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

var updateRecording = flag.Bool("update-recording", false, "write .github/session.svg anew: go test ./cmd/stint -run TestScript/recording -update-recording")

// cmdRecording: recording FILE checks that FILE, an SVG, shows what the last command
// printed on its terminal, but for ids and times.
func cmdRecording(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, 1, 1, "recording FILE")
	home := filepath.Join(ts.Getenv("WORK"), "home")
	lines := terminalLines(strings.ReplaceAll(ts.ReadFile("ttyout"), home, "/home/ana"))
	if *updateRecording {
		ts.Check(os.WriteFile(args[0], []byte(recordingSVG(lines)), 0o644))
	}
	var shown []string
	for _, m := range svgLine.FindAllStringSubmatch(ts.ReadFile(args[0]), -1) {
		shown = append(shown, html.UnescapeString(svgTag.ReplaceAllString(m[1], "")))
	}
	got := sgrSequence().ReplaceAllString(strings.Join(lines, "\n"), "")
	if want := strings.Join(shown, "\n"); sameEachTime(got) != sameEachTime(want) {
		ts.Fatalf("the recording shows\n%s\nand stint prints\n%s\nlook at it and write it anew with -update-recording", want, got)
	}
}

var (
	svgLine = regexp.MustCompile(`<text [^>]*>(.*)</text>`)
	svgTag  = regexp.MustCompile(`<[^>]*>`)
	changes = regexp.MustCompile(`[0-9a-f]{8}[0-9a-f-]*|[0-9]+|[ \t]+`)
)

// sameEachTime replaces what each recording has its own of: ids, times, and the width of columns.
func sameEachTime(s string) string { return changes.ReplaceAllString(s, " ") }

// terminalLines returns what a terminal shows in the end, line by line, with colours.
func terminalLines(output string) (lines []string) {
	for line := range strings.Lines(output) {
		line = strings.TrimRight(line, "\r\n")
		line = strings.ReplaceAll(line[strings.LastIndex(line, "\r")+1:], "\x1b[K", "")
		if line != "" && !strings.Contains(line, "is below /tmp") { // only tests are
			lines = append(lines, line)
		}
	}
	return lines
}

const svgHead = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 780 %d" width="780" height="%[1]d" role="img" aria-label="A terminal session">
<style>
text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; white-space: pre; fill: #d6dbe1; animation: show 10ms backwards; }
.c { fill: #ffffff; font-weight: bold; } .k31 { fill: #ff938a; } .k32 { fill: #56d364; } .k33 { fill: #e3b341; } .k36 { fill: #6cb6ff; } .k2 { fill: #9da7b1; }
@keyframes show { from { opacity: 0; } }
@media (prefers-reduced-motion: reduce) { text { animation: none; } }
</style>
<rect width="780" height="%[1]d" rx="8" fill="#0d1117"/>
`

// recordingSVG draws lines of a terminal, which appear one after another: a command after
// a pause, as if it was typed.
func recordingSVG(lines []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, svgHead, 18*len(lines)+28)
	at := 0.0
	for i, line := range lines {
		class := ""
		if at += 0.1; strings.HasPrefix(line, "$ ") {
			class, at = ` class="c"`, at+1.2
		}
		text := html.EscapeString(line)
		for _, m := range sgrSequence().FindAllString(text, -1) {
			tag := "</tspan>"
			if code := strings.Trim(m, "\x1b[m"); code != "0" {
				tag = `<tspan class="k` + code + `">`
			}
			text = strings.Replace(text, m, tag, 1)
		}
		fmt.Fprintf(&b, "<text x=\"14\" y=\"%d\"%s style=\"animation-delay:%.1fs\">%s</text>\n", 18*i+28, class, at, text)
	}
	return b.String() + "</svg>\n"
}
