package answer

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stint/state"
)

func TestCheckMessage(t *testing.T) {
	const empty, but = "the answer is empty", "the answer is empty but for "
	for message, want := range map[string]string{
		"": empty, " \n\t\u00a0": empty, " …\n": but + `"…"`, "---\n": but + `"---"`, "```\n```": but + "\"```\\n```\"",
		strings.Repeat(".", 90): but + `"` + strings.Repeat(".", 20) + `"`,
		"Done.":                 "", "0": "", "[]": "", `""`: "", "✓": "", "完了": "", "I'm sorry, but I can't help with that.": "",
	} {
		got := CheckMessage(message)
		if (len(got) == 0) != (want == "") || len(got) > 0 && got[0] != (state.Issue{Kind: KindEmpty, Message: want}) {
			t.Errorf("%q gives %v", message, got)
		}
	}
}

func TestParseChanges(t *testing.T) {
	got := ParseChanges("M\x00a.go\x00D\x00b \"c\"\n.go\x00R090\x00d.go\x00e.go\x00A\x00f\x00")
	want := []Change{{'M', "a.go", "a.go"}, {'D', "b \"c\"\n.go", "b \"c\"\n.go"}, {'R', "d.go", "e.go"}, {'A', "f", "f"}}
	if !cmp.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	for broken, n := range map[string]int{"": 0, "M": 0, "\x00\x00": 0, "M\x00a": 1, "R100\x00a": 0, "M\x00a\x00R100\x00b": 1} {
		if got := ParseChanges(broken); len(got) != n {
			t.Errorf("%q gives %v", broken, got)
		}
	}
}

func TestCheckChanges(t *testing.T) {
	for output, want := range map[string]string{
		"":                                   "",
		"M\x00a_test.go\x00":                 "",
		"A\x00a_test.go\x00":                 "",
		"D\x00a.go\x00":                      "",
		"R100\x00a_test.go\x00b/a_test.go":   "",
		"R080\x00a_test.go\x00a_test.go.off": "test files were deleted or renamed away: a_test.go",
		"D\x00test_a.py\x00M\x00a.py\x00":    "test files were deleted or renamed away: test_a.py",
		"D\x00tests/1.js\x00D\x00tests/2.js\x00D\x00tests/3.js\x00D\x00tests/4.js\x00": "test files were deleted or renamed away: tests/1.js, tests/2.js, tests/3.js and 1 more",
	} {
		got := CheckChanges(ParseChanges(output))
		if (len(got) == 0) != (want == "") || len(got) > 0 && got[0] != (state.Issue{Kind: KindTestsDeleted, Message: want}) {
			t.Errorf("%q gives %v", output, got)
		}
	}
}

func TestIsTest(t *testing.T) {
	for _, file := range []string{
		"a_test.go", "pkg/a_test.py", "test_a.py", "src/a.test.tsx", "a.spec.ts", "spec/a_spec.rb", "src/test/java/ATest.java",
		"tests/helper.rs", "__tests__/a.js", "t/01-a.t", "run.bats",
	} {
		if !IsTest(file) {
			t.Errorf("%s is no test", file)
		}
	}
	for _, file := range []string{"a.go", "testing.go", "contest.go", "latest.json", "tests/data.json", "test", "docs/test.md", "attest/a.go", "a_test.go.bak"} {
		if IsTest(file) {
			t.Errorf("%s is a test", file)
		}
	}
}
