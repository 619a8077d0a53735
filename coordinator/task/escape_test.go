package task_test

import (
	"testing"

	"stint/coordinator/task"
)

func TestEscapeText(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"plain, with\ttab and\nnewline, é 漢 😀", "plain, with\ttab and\nnewline, é 漢 😀"},
		{"\x1b[2J\x07", `\x1b[2J\x07`},
		{"\x1b]52;c;aGk=\x1b\\", `\x1b]52;c;aGk=\x1b\`},
		{"a\rb\x00\x7f", `a\x0db\x00\x7f`},
		{"\u009b31m", `\x9b31m`},
		{"bad \xff\xc3 bytes", `bad \xff\xc3 bytes`},
		{"a\u202eb", `a\u202eb`},
		{"\ufffd", "\ufffd"},
	} {
		if got := task.EscapeText(c.in); got != c.want {
			t.Errorf("%q: %q, want %q", c.in, got, c.want)
		}
	}
}
