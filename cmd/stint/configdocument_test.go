package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"stint/prompt"
)

func TestDocument(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, tc := range []struct{ value, text, wrong string }{
		{"default", prompt.DefaultPolicy, ""},
		{"none", "", ""},
		{"Be kind.", "Be kind.", ""},
		{"@" + write("policy.md", "\xef\xbb\xbfBe brief.\n"), "Be brief.\n", ""},
		{"@policy.md", "", "is not an absolute path"},
		{"@" + dir + "/none.md", "", "no such file"},
		{"@" + dir, "", "is not a file"},
		{"@" + write("large", strings.Repeat("x", maxDocument+1)), "", "more than the 65536 bytes"},
		{"@" + write("binary", "\x00\x01"), "", "no text in UTF-8"},
	} {
		t.Run(tc.value, func(t *testing.T) {
			var c Config
			err := findKey("output_policy").set(&c, tc.value)
			switch {
			case tc.wrong != "" && (err == nil || !strings.Contains(err.Error(), tc.wrong)):
				t.Errorf("%v, and not %s", err, tc.wrong)
			case tc.wrong == "" && (err != nil || c.OutputPolicy != document{tc.value, tc.text}):
				t.Errorf("%+v, %v", c.OutputPolicy, err)
			}
		})
	}
}
