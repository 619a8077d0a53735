package answer

import (
	"strings"
	"testing"

	"stint/state"
)

func TestCheckMessage(t *testing.T) {
	const empty = "the answer has no words"
	for message, want := range map[string]string{
		"": empty, " \n\t\u00a0": empty, " …\n": empty, "---\n": empty, "```\n```": empty, strings.Repeat(".", 90): empty,
		"Done.": "", "0": "", "[]": "", `""`: "", "✓": "", "完了": "", "I'm sorry, but I can't help with that.": "",
	} {
		got := CheckMessage(message)
		if (len(got) == 0) != (want == "") || len(got) > 0 && got[0] != (state.Issue{Kind: KindEmpty, Message: want}) {
			t.Errorf("%q gives %v", message, got)
		}
	}
}

func TestCheckChanges(t *testing.T) {
	gone := func(names ...string) (list []state.FileChange) {
		for _, name := range names {
			list = append(list, state.FileChange{Path: name, Change: state.FileDeleted})
		}
		return list
	}
	const message = "test files were deleted or renamed away: "
	for _, c := range []struct {
		changes []state.FileChange
		want    string
	}{
		{nil, ""},
		{[]state.FileChange{{Path: "a_test.go", Change: state.FileModified}}, ""},
		{[]state.FileChange{{Path: "a_test.go", Change: state.FileAdded}}, ""},
		{[]state.FileChange{{From: "a_test.go", Path: "b/a_test.go", Change: state.FileRenamed}}, ""},
		{[]state.FileChange{{From: "a_test.go", Path: "a_test.go.off", Change: state.FileRenamed}}, message + "a_test.go"},
		{gone("a.go"), ""},
		{append(gone("test_a.py"), state.FileChange{Path: "a.py", Change: state.FileModified}), message + "test_a.py"},
		{gone("tests/1.js", "tests/2.js", "tests/3.js", "tests/4.js"), message + "tests/1.js, tests/2.js, tests/3.js, tests/4.js"},
	} {
		got := CheckChanges(c.changes)
		if (len(got) == 0) != (c.want == "") || len(got) > 0 && got[0] != (state.Issue{Kind: KindTestsDeleted, Message: c.want}) {
			t.Errorf("%v gives %v", c.changes, got)
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
