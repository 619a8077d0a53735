package memory

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTermsOfAPrompt(t *testing.T) {
	for _, tt := range []struct{ name, prompt, want string }{
		{"stop words are left out", "Please fix the flaky test for me", "flak test"},
		{"German ones too", "Bitte mach das nicht mit der Datenbank", "mach datenbank"},
		{"words lose their endings", "running retries, cached configurations", "run retr cach configur"},
		{"short words keep theirs", "red bus ties", "red bus ties"},
		{"y and ies alike, but not after a vowel", "retry retries deploy deploying", "retr deploy"},
		{"each once", "Test tests TEST tested", "test"},
		{"camelCase whole and in parts", "parseHTTPHeader fails", "parsehttpheader fail pars http head"},
		{"snake_case", "max_worker_count", "max_worker_count max work count"},
		{"a path", "see cmd/stint/main.go.", "cmd/stint/main.go cmd stint main"},
		{"an option", "--no-verify", "no-verify verif"},
		{"an address", "http://localhost:8080/healthz", "http://localhost:8080/healthz http localhost 8080 healthz"},
		{"apostrophes", "don't break the user's build", "break build user"},
		{"numbers", "error 10061 on port 443", "error 10061 port 443"},
		{"Chinese in pairs", "部署失败", "部署 署失 失败"},
		{"mixed scripts", "用redis缓存", "redis 用 缓存"},
		{"Japanese", "テストが失敗する", "テス スト トが が失 失敗 敗す する"},
		{"Japanese words of hiragana", "さくら", "さく くら"},
		{"short ones too", "ねこ が", "ねこ"},
		{"one character of katakana or hangul", "ア 서", "ア 서"},
		{"a time and an address", "2026-11-22T03:12:45.123Z 10.0.0.7:443 v1.2.3 slow", "2026-11-22t03:12:45.123z 10.0.0.7:443 v1.2.3 slow 2026 22t03 123z 443"},
		{"a place in a file", "pkg/auth/token.go:88:12 fails", "pkg/auth/token.go fail pkg auth token"},
		{"Korean in pairs", "서버가 죽었다", "서버 버가 죽었 었다"},
		{"accents", "Größe prüfen", "größ prüf"},
		{"Russian", "настройки сервера", "настрой серве"},
		{"nothing", " \n\t?!… ", ""},
		{"bad bytes", "a\xffb\xfeword", "word"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, term := range termsOf(tt.prompt) {
				got = append(got, term.Text)
			}
			if s := strings.Join(got, " "); s != tt.want {
				t.Errorf("termsOf(%q) = %q, want %q", tt.prompt, s, tt.want)
			}
		})
	}
}

func TestNamesComeFirst(t *testing.T) {
	terms := termsOf(strings.Repeat("some ordinary words about things that matter little ", 3) + "pkg/auth/token.go")
	if terms[0].Text != "pkg/auth/token.go" {
		t.Errorf("first is %q, want the path: it says most", terms[0].Text)
	}
}

// TestALogDoesNotHideTheQuestion: a pasted log or a trace of a hundred lines, whose
// words repeat or do not, before the question or behind it, in a language with blanks
// and in one without, also if the question looks like a line of a log.
func TestALogDoesNotHideTheQuestion(t *testing.T) {
	var log, trace, names strings.Builder
	for i := range 100 {
		fmt.Fprintf(&log, "2026-11-22T03:12:%02d.%03dZ 10.0.%d.7:443 I%04d handler-%d served /api/v%d/items_%d in %dms\n", i%60, i*7, i, i, i, i%3, i, i*3)
		fmt.Fprintf(&trace, "  shop/internal/part%dHandler.serveHTTP(0x14000%04x)\n\t/src/internal/part%d/serve_handler.go:%d +0x1d\n", i, i, i, i)
		word := func(n int) string {
			return strings.Repeat(string(rune('b'+n%20)), 2) + "o" + string(rune('b'+n/20)) + "u"
		}
		fmt.Fprintf(&names, "2026-11-22T03:12:%02d.%03dZ %sson has left %sberg for %stown\n", i%60, i*7, word(i), word(i), word(i))
	}
	dir := workspace(t, map[string]string{"MEMORY.md": strings.Repeat("nothing of use\n", 30) + "The deploy key is in the vault.\n部署密钥在保险库里。\n"})
	for _, ask := range []struct{ question, place string }{
		{"Why is the deploy key refused?", "MEMORY.md:31"},
		{"为什么部署密钥被拒绝？", "MEMORY.md:32"},
		{"Since 14:05:12 the deploy key is refused, why?", "MEMORY.md:31"},
		{"After the upgrade to 1.24.3 the deploy key is refused.\nWhy is that so?", "MEMORY.md:31"},
	} {
		for name, prompt := range map[string]string{
			"before a log":   ask.question + "\n\n" + log.String(),
			"behind a log":   log.String() + "\n" + ask.question,
			"before a trace": ask.question + "\n\n" + trace.String(),
			"behind a trace": trace.String() + "\n" + ask.question,
			"before names":   ask.question + "\n" + names.String(),
			"behind names":   names.String() + "\n" + ask.question,
		} {
			if got := places(search(t, ownScan(), dir, prompt)); len(got) == 0 || got[0] != ask.place {
				t.Errorf("%s %s: hits %v", ask.question, name, got)
			}
		}
	}
}

func TestALongPromptHasBoundedTerms(t *testing.T) {
	var b strings.Builder
	for i := range 300_000 {
		b.WriteString(string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676%26)) + "x ")
	}
	terms := termsOf("firstword " + b.String() + " lastword")
	if len(terms) != maxTerms {
		t.Errorf("%d terms, want %d", len(terms), maxTerms)
	}
	if terms[0].Text != "firstword" {
		t.Errorf("the beginning of a long prompt is not looked at: %q", terms[0].Text)
	}
}

func FuzzTermsOf(f *testing.F) {
	for _, seed := range []string{
		"", "Fix the login test", "--pre=sh -e foo $(x) `y`", "parseHTTPHeader in pkg/a.go:12", "部署失败，请看 deploy.sh", "テスト が", "서버가", "a\xff\xfe\x00b",
		"....", "'", strings.Repeat("x", 200) + ".go", "İstanbul ǅ ß", "\ufeff", "ﬁ ﬃ", "настройки",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, prompt string) {
		terms := termsOf(prompt)
		if len(terms) > maxTerms {
			t.Fatalf("%d terms", len(terms))
		}
		var seen []string
		for _, term := range terms {
			switch {
			case term.Text == "", len(term.Text) > 512, !utf8.ValidString(term.Text), strings.ContainsAny(term.Text, "\x00\r\n"):
				t.Errorf("term %q cannot be searched for", term.Text)
			case strings.HasPrefix(term.Text, "-"):
				t.Errorf("term %q looks like an option", term.Text)
			case slices.Contains(seen, term.Text):
				t.Errorf("term %q is there twice", term.Text)
			case term.kind <= 0:
				t.Errorf("term %q counts nothing", term.Text)
			}
			seen = append(seen, term.Text)
		}
	})
}
