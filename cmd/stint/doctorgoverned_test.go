package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"stint/memory"
)

// Entries for which a governed file has no room are told of.
func TestDoctorFullNotes(t *testing.T) {
	g := memory.Governed{Path: "notes.md", Kind: "memory", Workspace: t.TempDir()}
	path := filepath.Join(g.Workspace, g.Path)
	for lines, want := range map[int]string{10: "ok", 3000: "ok warning"} {
		must(t, os.WriteFile(path, []byte("# Notes\n"+strings.Repeat("- a note of some forty bytes, which are more\n", lines)), 0o600))
		list := examineGoverned(g)
		got := ""
		for _, f := range list {
			got += " " + f.Status
		}
		if got[1:] != want || len(list) > 1 && !strings.Contains(list[1].Text, path+":") {
			t.Errorf("%+v", list)
		}
	}
}
