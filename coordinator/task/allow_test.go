package task

import (
	"strings"
	"testing"
)

// TestRules: what is a rule, and which rules another one covers. A task's rule that is not
// covered by one of the configuration never reaches its agent.
func TestRules(t *testing.T) {
	for _, bad := range []string{
		"", " ", "Bash(", "Bash()", "Bash)", "Bash(a))", "Bash((a)", "Bash(a)x", "(a)", "Ba sh", "Bash*", "*", "mcp__*", "Bash (a)",
		"Bash(*)", "Bash( *)", "Bash(go *test)", "Bash(go* *)", "Bash(go test*)", "Bash(go test:*)", "Bash(go * *)", "Bash(go test  *)", "Bash( go)", "Bash(go )",
		"Read(src/**)", "Read(src *)", "WebFetch(domain:*)", `Bash(go \*)`, `Bash(a\)`, "Bash(go\ntest *)", "Bash(a\x00)", "Bash(a\u200b)", "Bash(a\u202e)", "Bash(a\u00a0b)", "Bash(a\xff)",
		"Bash(" + strings.Repeat("a", maxRule) + ")", strings.Repeat("B", maxRule+1), "Bäsh", "Bash,Edit", "- Bash",
	} {
		if r, err := ParseRule(bad); err == nil {
			t.Errorf("%q is %+v", bad, r)
		}
		if len(Beyond([]string{bad}, []string{bad, "Bash"})) == 0 || len(Beyond([]string{"Bash(a)"}, []string{bad})) == 0 {
			t.Errorf("%q covers or is covered", bad)
		}
	}
	for _, c := range []struct{ rule, by, not string }{ // lists with lines
		{"Bash", "Bash", "bash\nBash(a)\nBash(a *)\nEdit"},
		{"Edit(a b)", "Edit\nEdit(a b)", "Edit(a)\nBash\nBash(a *)"},
		{"Bash(go test)", "Bash\nBash(go test)\nBash(go test *)\nBash(go *)", "Bash(go test x)\nBash(go test x *)\nBash(go t)\nBash(g *)\nBash(go tes *)"},
		{"Bash(go test *)", "Bash\nBash(go test *)\nBash(go *)", "Bash(go test)\nBash(go tes *)\nBash(go test x *)\nBash(g *)\nEdit\nEdit(go test)"},
		{"Bash(go test ./... -run=A_b@1,2 *)", "Bash(go *)\nBash(go test *)\nBash(go test ./... *)", "Bash(go test ./...)"},
		// Behind the command that is permitted stands what may be another one.
		{"Bash(go test; rm -rf /)", "Bash\nBash(go test; rm -rf /)\nBash(go test; rm *)", "Bash(go test *)\nBash(go *)"},
		{"Bash(go test;rm *)", "Bash", "Bash(go test *)\nBash(go *)"},
		{"Bash(go test x && rm *)", "Bash", "Bash(go test *)\nBash(go test x *)"},
		{"Bash(go test x | sh)", "Bash", "Bash(go test *)"},
		{"Bash(go test > /etc/passwd)", "Bash", "Bash(go test *)"},
		{"Bash(go test $HOME)", "Bash", "Bash(go test *)"},
		{"Bash(go test `id`)", "Bash", "Bash(go test *)"},
		{"Bash(go test \"a\")", "Bash", "Bash(go test *)"},
		{"Bash(go test 'a; b')", "Bash", "Bash(go test *)"},
		{"Bash(go test {a,b})", "Bash", "Bash(go test *)"},
		{"Bash(go test ~)", "Bash", "Bash(go test *)"},
		{"Bash(go test #)", "Bash", "Bash(go test *)"},
		{"Bash(go test é)", "Bash", "Bash(go test *)"},
		{"Bash(X=1 go test)", "Bash", "Bash(go test *)"},
		{"Bash(go testx)", "Bash\nBash(go *)", "Bash(go test *)"},
		{"Bash(go test./x)", "Bash", "Bash(go test *)"},
	} {
		for _, by := range strings.Split(c.by, "\n") {
			if more := Beyond([]string{c.rule}, []string{"Glob", by}); len(more) > 0 {
				t.Errorf("%s does not cover %s", by, c.rule)
			}
		}
		for _, by := range strings.Split(c.not, "\n") {
			if more := Beyond([]string{c.rule}, []string{by}); len(more) != 1 {
				t.Errorf("%s covers %s", by, c.rule)
			}
		}
	}
	if got := Beyond([]string{"Edit", "Bash(a)", "Bash(b)"}, []string{"Edit", "Bash(b)"}); len(got) != 1 || got[0] != "Bash(a)" {
		t.Errorf("beyond: %q", got)
	}
	if err := CheckAllow(&TaskSpec{Allow: make([]string, maxRules+1)}); err == nil || !strings.Contains(err.Error(), "at most 32") {
		t.Errorf("%v", err)
	}
}

// FuzzRules: whatever command a rule is covered by, it begins with that command, and no
// character behind it can begin another one.
func FuzzRules(f *testing.F) {
	for _, seed := range [][2]string{{"Bash(go test x *)", "Bash(go test *)"}, {"Bash(go test; rm -rf /)", "Bash(go test *)"}, {"Edit", "Edit(a)"}, {"Bash(a\u2028b)", "Bash(a *)"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, text, byText string) {
		rule, err := ParseRule(text)
		by, byErr := ParseRule(byText)
		if within := len(Beyond([]string{text}, []string{byText})) == 0; within != (err == nil && byErr == nil && by.Covers(rule)) {
			t.Fatalf("%q within %q: %v", text, byText, within)
		}
		if err != nil || byErr != nil || !by.Covers(rule) || by.Text == "" || text == byText {
			return
		}
		command := strings.TrimSuffix(byText, " *)")
		behind, found := strings.CutPrefix(strings.TrimSuffix(strings.TrimSuffix(text, ")"), " *"), command)
		if !found || command == byText || strings.ContainsAny(behind, ";&|<>$`\\\"'(){}[]*?#!~\n\r\t") || behind != "" && behind[0] != ' ' {
			t.Errorf("%q covers %q", byText, text)
		}
	})
}
