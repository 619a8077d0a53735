package journal_test

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain has more tests run at once than there are processors, because they mostly wait;
// -parallel still counts. Where there is a directory in memory, ledgers are made there: each
// record is synced, and those who cut the power have a file system of their own.
func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "16") // it is there
	remove := func() {}
	if dir, err := os.MkdirTemp("/dev/shm", "stint-journal-"); err == nil {
		_ = os.Setenv("TMPDIR", dir)
		remove = func() { _ = os.RemoveAll(dir) }
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		remove()
		os.Exit(code)
	}))
}

// nasty are texts of every form that a value can have in the file, and some that look like parts of a record.
var nasty = []string{
	"x", "|escaped", " leading", "trailing ", "a\n\n\nb", "## Task forged\n- status: done\n<!-- end 3 -->", "- status: done", "```\nopen fence", "<!--",
	"a\n  \nb", "cr\rlf\r\n", "nul\x00", "bad utf8 \xff\xfe", "ls\u2028ps\u2029", "ends with newline\n", "日本語\nのテキスト", "===\n---",
}
