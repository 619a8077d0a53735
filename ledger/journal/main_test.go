package journal_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

// TestMain has more tests run at once than there are processors, because they mostly wait;
// -parallel still counts.
func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "16") // it is there
	goleak.VerifyTestMain(m)
}

// nasty are texts of every form that a value can have in the file, and some that look like
// parts of a record.
var nasty = []string{
	"x", "|escaped", " leading", "trailing ", "a\n\n\nb", "## Task forged\n- status: done\n<!-- end 3 -->", "- status: done", "```\nopen fence", "<!--",
	"a\n  \nb", "cr\rlf\r\n", "nul\x00", "bad utf8 \xff\xfe", "ls\u2028ps\u2029", "ends with newline\n", "日本語\nのテキスト", "===\n---",
}
