package main

import (
	"os"
	"path/filepath"
	"strings"
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

// What a running master knows of the wrong one holds; what else has changed counts.
func TestAMistakeMadeLater(t *testing.T) {
	file := newSchedulesFile(t.TempDir(), &Config{})
	block := func(name, cron string) string {
		return "[[schedule]]\nname = \"" + name + "\"\ncron = \"" + cron + "\"\njob = \"fsck\"\n"
	}
	for i, c := range []struct{ text, want string }{
		{block("a", "@daily") + block("b", "@daily"), "a @daily b @daily "},
		{block("a", "@every 5x") + block("b", "@weekly") + block("c", "@daily"), "a @daily b @weekly c @daily "},
		{block("a", "@every 5x"), "a @daily "},
		{block("a", "@hourly") + block("b", "@every 5x"), "a @hourly "},
		{"[[", "a @hourly "},
		{"", "a @hourly "}, // an editor may be about to write it
		{block("d", "@daily") + block("d", "@daily"), "a @hourly "},
		{block("d", "@every 5x"), ""},
	} {
		if err := os.WriteFile(file.path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		list, err := file.read()
		got := ""
		for _, s := range list {
			got += s.Name + " " + s.Cron + " "
		}
		if isGood := i == 0; got != c.want || (err == nil) != isGood {
			t.Errorf("%q: %q, %v", c.text, got, err)
		}
	}
}

// What is wrong is said in the words of the file.
func TestAMistakeIsSaidAsTheFileHasIt(t *testing.T) {
	for text, want := range map[string]string{
		"cron = \"@daily\"\nprompt = \"p\"":                                 "schedules.toml:1: schedule 1: name is missing",
		"name = \"a\"\ncron = \"@daily\"\nprompt = \"p\"\nwhen = \"now\"":   `schedules.toml:5: schedule a: when: unknown field (known are `,
		"name = \"a\"\ncron = \"@daily\"\nprompt = \"p\"\nagent = \"bard\"": `schedules.toml:5: schedule a: there is no agent "bard"; known are `,
	} {
		_, err := parseSchedules([]byte("[[schedule]]\n"+text+"\n"), nil, nil)
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "maxAttempts") {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
