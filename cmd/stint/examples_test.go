package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"stint/coordinator"
	"stint/ledger"
)

const examplesDir = "../../examples"

// TestExampleConfig: the example has every key, with its default.
func TestExampleConfig(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(examplesDir, "config.toml"))
	if err != nil {
		t.Fatal(err)
	}
	c := mustLoad(t, string(text), nil, nil)
	without := mustLoad(t, "", nil, nil)
	for _, k := range keys {
		if !strings.Contains("\n"+string(text), "\n"+k.name+" = ") {
			t.Errorf("examples/config.toml lacks %s", k.name)
		}
		if got, want := tomlValue(k.get(c)), tomlValue(k.get(without)); got != want {
			t.Errorf("%s is %s in the example, and by default %s", k.name, got, want)
		}
	}
}

// TestExampleLedger: the example is taken over without a finding, and its tasks
// are what the text around them says.
func TestExampleLedger(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(examplesDir, "tasks.md"))
	if err != nil {
		t.Fatal(err)
	}
	doc := ledger.Parse(text)
	if len(doc.Findings) > 0 {
		t.Fatal(doc.Findings[0])
	}
	var got []string
	for i := range doc.Sections {
		got = append(got, string(doc.Sections[i].ID)+" "+doc.Sections[i].Value("status"))
	}
	const id = "019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11"
	if want := id + " queued," + id + " done,shop-fixtures queued,someday "; strings.Join(got, ",") != want {
		t.Errorf("the example has %q", got)
	}
}

// TestExampleSpecs: the example can be read, each task has a prompt, and what comes
// after another task of it names that one.
func TestExampleSpecs(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(examplesDir, "tasks.json"))
	if err != nil {
		t.Fatal(err)
	}
	specs, err := coordinator.ParseSpecs("tasks.json", text)
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for _, s := range specs {
		for _, id := range s.After {
			if !ids[id] {
				t.Errorf("%q comes after %s, which is not in the file", s.Prompt, id)
			}
		}
		if ids[s.ID] = true; s.Prompt == "" {
			t.Errorf("no prompt: %+v", s)
		}
	}
	if len(specs) != 3 || specs[2].Agent != "claude" || specs[2].OutputSpec[0] != "results.txt" || specs[2].TenantID != "shop" {
		t.Errorf("the example has %+v", specs)
	}
}
