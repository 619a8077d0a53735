package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"stint/coordinator/task"
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
		_, short := cutSection(k.inFile())
		if !strings.Contains("\n"+string(text), "\n"+short+" = ") {
			t.Errorf("examples/config.toml lacks %s", k.inFile())
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
	for i, want := range []string{"go test ./...", "", "go test -timeout 30s ./...", ""} {
		if got := doc.Sections[i].Value("verifyCommand"); got != want {
			t.Errorf("section %d of the example is verified with %q, want %q", i+1, got, want)
		}
	}
	if want := id + " queued," + id + " done,shop-fixtures queued,someday "; strings.Join(got, ",") != want {
		t.Errorf("the example has %q", got)
	}
}

// TestExampleSpecs: the example can be read, and queued each night. recipes.txtar runs it.
func TestExampleSpecs(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(examplesDir, "tasks.json"))
	if err != nil {
		t.Fatal(err)
	}
	specs, err := task.ParseSpecs("tasks.json", text)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range specs {
		if s.Prompt == "" || s.ID != "" || s.IdempotencyKey != "" || s.Agent != "" {
			t.Errorf("it has no prompt, is made once only, or needs a certain agent: %+v", s)
		}
	}
	if len(specs) != 3 || specs[1].VerifyCommand != "git diff --check" || specs[1].MaxIterations != 5 || specs[1].OnFailure == "" || specs[2].OutputSpec[0] != "README.md" || specs[2].TenantID != "shop" {
		t.Errorf("the example has %+v", specs)
	}
}

// TestExampleScripts: each can be started, says how, is run by recipes.txtar or
// http_recipes.txtar, and is named in the README.
func TestExampleScripts(t *testing.T) {
	scripts, err := filepath.Glob(filepath.Join(examplesDir, "*.sh"))
	if err != nil || len(scripts) < 5 {
		t.Fatal(scripts, err)
	}
	named := map[string]string{}
	for file, where := range map[string]string{
		"testdata/script/recipes.txtar": "the recipes", "testdata/script/http_recipes.txtar": "the recipes", "../../README.md": "the README",
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		named[where] += string(text)
	}
	for _, script := range scripts {
		text, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(script)
		if fi, err := os.Stat(script); err != nil || fi.Mode()&0o111 != 0o111 {
			t.Errorf("%s cannot be started: %v, %v", name, fi.Mode(), err)
		}
		if head, _, _ := strings.Cut(string(text), "\nset -eu\n"); !strings.HasPrefix(head, "#!/bin/sh\n# ") || !strings.Contains(head, name+" ") {
			t.Errorf("%s does not say at its head how to call it, before set -eu", name)
		}
		for where, text := range named {
			if !strings.Contains(text, name) {
				t.Errorf("%s does not name %s", where, name)
			}
		}
	}
}
