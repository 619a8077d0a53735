package ledger

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/text"
)

// markdownHeadings returns the headings of records at the top level of the document
// as goldmark sees it: offset of the line, kind and id.
func markdownHeadings(data []byte) (list []string) {
	root := goldmark.DefaultParser().Parse(text.NewReader(data))
	for n := root.FirstChild(); n != nil; n = n.NextSibling() {
		h, ok := n.(*ast.Heading)
		if !ok || h.Level != 2 || h.Lines().Len() == 0 {
			continue
		}
		start := bytes.LastIndexByte(data[:h.Lines().At(0).Start], '\n') + 1
		line, _, _ := bytes.Cut(data[start:], newline)
		if kind, id, ok := recordHeading(TrimRight(line)); ok && ValidID(id) {
			list = append(list, fmt.Sprintf("%d: %s %s", start, kind, id))
		}
	}
	return list
}

// headingsOf returns the same of our records.
func headingsOf(doc *Document) (list []string) {
	for i := range doc.Sections {
		s := &doc.Sections[i]
		list = append(list, fmt.Sprintf("%d: %s %s", s.Off, s.Kind, s.ID))
	}
	return list
}

// otherwise are the lines where goldmark does not follow CommonMark 0.31: a declaration with a small letter,
// a tab in a tag, a closing tag with a blank before its name, and an empty item, for which see TestEmptyItem. Control characters are white space for it
// nearly everywhere; in CommonMark a lone CR ends a line, for us it does not, and the others are text.
var otherwise = regexp.MustCompile(`<![a-z]|</ |<[^\n]*\t|(?m:^(?:[ \t>]|(?:[-+*]|\d{1,9}[.)])[ \t])*(?:[-+*]|\d{1,9}[.)])[ \t]*$)` +
	`|[\x00-\x08\v-\x1f\x7f]`)

// TestEmptyItem: a heading in an item that begins with an empty line, and in one
// around such an item, which a blank line ends; as markdown-it has it.
func TestEmptyItem(t *testing.T) {
	for _, text := range []string{
		"* *\n\n  ## Task a\n", "1. -\n\n   ## Task a\n", "* a\n\n  -\n\n  ## Task a\n",
		"-\n  ## Task a\n", "-   \n   * text\n   ## Task a\n", "- \n   10) text\n  ## Task a\n", "* *\n*\n  ## Task a\n",
	} {
		if got := headingsOf(Parse([]byte(text))); len(got) > 0 {
			t.Errorf("%q: %q", text, got)
		}
	}
}

func compareHeadings(t *testing.T, data []byte) {
	data = bytes.ReplaceAll(bytes.TrimPrefix(data, bom), []byte("\r\n"), newline) // goldmark takes "-\r\n" for an item with text
	if otherwise.Match(data) {
		return
	}
	doc := Parse(data)
	if len(doc.Findings) > 0 {
		return
	}
	var want []string
	for _, h := range markdownHeadings(data) {
		var off int
		if _, err := fmt.Sscanf(h, "%d:", &off); err != nil {
			t.Fatal(err)
		}
		if !doc.inOwn(off) {
			want = append(want, h)
		}
	}
	if diff := cmp.Diff(want, headingsOf(doc)); diff != "" {
		t.Errorf("headings in Markdown (-) and records (+): %s\n%s\n%q", diff, data, data)
	}
}

// inOwn reports whether an offset lies in a record of stint's own, below its
// heading: what a formatter made of the bullets there does not matter.
func (d *Document) inOwn(off int) bool {
	for i := range d.Sections {
		s := &d.Sections[i]
		if s.Seq > 0 && int(s.Off) < off && off < int(s.Off)+len(s.Raw) {
			return true
		}
	}
	return false
}

// TestHeadingsLikeGoldmark compares the same documents in every run. The search for
// others is left to .ci/deep: what it finds is as often goldmark's as ours.
func TestHeadingsLikeGoldmark(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(list []string) string { return list[random.IntN(len(list))] }
	prefixes := []string{"", "", " ", "  ", "   ", "    ", "\t", "> ", "- ", "-", "* ", "1. ", "10) ", "-   "}
	for range 30_000 {
		var doc []byte
		for range 1 + random.IntN(6) {
			heading := fmt.Sprintf("## Task %c", 'a'+len(doc)%26)
			doc = fmt.Append(doc, pick(prefixes), pick(prefixes), pick([]string{"", "text", heading, heading, pick(words)}), "\n")
		}
		compareHeadings(t, doc)
	}
}

// FuzzHeadingsLikeGoldmark: our records are exactly the record headings at the top
// level of the document, wherever nothing is found to be wrong.
func FuzzHeadingsLikeGoldmark(f *testing.F) {
	for _, s := range []string{
		"- a\n\n  ## Task b\n", "> q\n## Task b\n", "> - q\n<x>\n## Task b\n\n## Task c\n", "1. a\n   - b\n\n     ## Task c\n  ## Task d\n",
		"-\n\n  ## Task b\n", "```\n## Task b\n```\n## Task c\n", "````\n```\n## Task b\n````\n## Task c\n", "\t## Task b\n", "-\t\t## Task b\n", "[a]: /b\n<x>\n## Task c\n",
		"text\n---\n## Task b\n", "<pre>\n## Task b\n</script>\n## Task c\n", "- a\n\n\n\n      ## Task b\n", "* * *\n  ## Task c\n",
		"- prompt: |\n  x\n\npara\n  ## Task b\n", "## Task a\n- prompt: |\n  x\n\npara\n  ## Task b\n", "- ```\n  ## Task a\n## Task b\n", "10) x\n    ## Task c\n",
	} {
		f.Add([]byte(s))
	}
	names, err := filepath.Glob("testdata/*.md")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		compareHeadings(t, data)
		compareHeadings(t, documentOf(data))
	})
}

// words are the pieces that documentOf makes a document of.
var words = []string{
	"\n", "\n", "\n", "\n\n", "\n\n\n", " ", "  ", "   ", "    ", "\t", "> ", ">", "- ", "-", "* ", "+ ", "1. ", "2) ", "10. ", "-   ", "-     ", "-\t",
	"## Task a", "## Task b", "## Job c", "## Control d ##", "##\tTask e", "## Tasks", "# One", "### Task f", "## Task", "text", "more text", "=", "===", "---", "* * *",
	"```", "````", "~~~", "``` go", "<!--", "-->", "<!-- x -->", "<div>", "</div>", "<pre>", "</pre>", "<x>", "<x y='z'>", "<?", "?>", "<![CDATA[", "]]>", "<!X", ">", "<script>", "</style>",
	"[a]: /b", "[a]:", "\"title\"", "status: queued", "- status: queued", "- prompt: |", "  body", "`x`", "\\", "&amp;", "|", "\r\n", "\u00a0",
}

// documentOf makes a document of one word a byte: most byte strings are no Markdown worth the name.
func documentOf(choices []byte) []byte {
	var doc []byte
	for _, c := range choices {
		doc = append(doc, words[int(c)%len(words)]...)
	}
	return doc
}
