package main

import (
	"os"
	"path/filepath"
	"testing"

	"stint/coordinator/schedule"
)

// A mistake in one block of schedules.toml stops that schedule alone, also for a master that has read nothing before it.
func TestAMistakeInOneSchedule(t *testing.T) {
	dir := t.TempDir()
	const good, bad = "[[schedule]]\nname = \"a\"\ncron = \"@daily\"\njob = \"fsck\"\n", "[[schedule]]\nname = \"b\"\ncron = \"@every 5x\"\njob = \"fsck\"\n"
	configured := &Config{}
	configured.Schedules = []schedule.Schedule{{Name: "c"}}
	for text, want := range map[string]string{good + bad: "ca", bad + good: "ca", good + good: "c", good[:20]: "c", bad: "c"} {
		if err := os.WriteFile(filepath.Join(dir, schedulesName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		list, err := newSchedulesFile(dir, configured).read()
		got := ""
		for i := range list {
			got += list[i].Name
		}
		if err == nil || got != want {
			t.Errorf("%q: %s, %v", text, got, err)
		}
	}
}
