package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"stint/coordinator/postgres"
	"stint/coordinator/postgres/postgrestest"
	"stint/coordinator/task"
	"stint/ledger"
)

const examplesDir = "../../examples"

// TestExampleConfig: the example has every key, with its default.
func TestExampleConfig(t *testing.T) {
	text := get(t, filepath.Join(examplesDir, "config.toml"))
	c := mustLoad(t, string(text), nil, nil)
	without := mustLoad(t, "", nil, nil)
	for _, k := range keys {
		_, short := cutSection(k.inFile())
		if !strings.Contains("\n"+string(text), "\n"+short+" = ") {
			t.Errorf("examples/config.toml lacks %s", k.inFile())
		}
		if got, want := tomlText(k.get(c)), tomlText(k.get(without)); got != want {
			t.Errorf("%s is %s in the example, and by default %s", k.name, got, want)
		}
	}
}

// TestExampleLedger: the example is taken over without a finding, and its tasks
// are what the text around them says.
func TestExampleLedger(t *testing.T) {
	text := get(t, filepath.Join(examplesDir, "tasks.md"))
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
	text := get(t, filepath.Join(examplesDir, "tasks.json"))
	specs, err := task.ParseSpecs("tasks.json", text)
	must(t, err)
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
// http_recipes.txtar, and is named in the manual.
func TestExampleScripts(t *testing.T) {
	scripts, err := filepath.Glob(filepath.Join(examplesDir, "*.sh"))
	if err != nil || len(scripts) < 5 {
		t.Fatal(scripts, err)
	}
	named := map[string]string{}
	for file, where := range map[string]string{
		"testdata/script/recipes.txtar": "the recipes", "testdata/script/http_recipes.txtar": "the recipes", "help/scripting.md": "the manual", "help/http.md": "the manual",
	} {
		text := get(t, file)
		named[where] += string(text)
	}
	for _, script := range scripts {
		text := get(t, script)
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

// TestExampleQueries: each query of the examples says its question, is a single
// statement that changes nothing, and gives for a few rows what the golden file has.
// They are run as a person runs them; one transaction gives all the same "now".
func TestExampleQueries(t *testing.T) {
	queries, err := filepath.Glob(filepath.Join(examplesDir, "postgres", "*.sql"))
	queries = slices.DeleteFunc(queries, func(file string) bool { return file == forgetHost })
	if err != nil || len(queries) < 9 {
		t.Fatal(queries, err)
	}
	args := []string{"--set=task=docs", "--single-transaction", "--file=testdata/postgres/rows.sql", "--command=SET TRANSACTION READ ONLY"}
	for _, query := range queries {
		checkQuestion(t, query)
		args = append(args, "--command=\\echo == "+filepath.Base(query), "--file="+query)
	}
	got := recentDay.ReplaceAllString(runPsql(t, migratedDatabase(t), args...), "(of late)")
	if want := fileText(t, "testdata/postgres/answers.golden"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// forgetHost is the one example that changes something.
var forgetHost = filepath.Join(examplesDir, "postgres", "forget_host.sql")

// TestForgetHost: of the host that is named no row is left, and of others all are.
// Without a name nothing goes.
func TestForgetHost(t *testing.T) {
	url := migratedDatabase(t)
	const rows = `--command=SELECT host, count(*) FROM (SELECT host FROM tasks UNION ALL SELECT host FROM task_runs UNION ALL SELECT host FROM task_files
		UNION ALL SELECT host FROM accounts UNION ALL SELECT group_name FROM worker_registry UNION ALL SELECT host FROM mirrors) r GROUP BY host ORDER BY host`
	const more = `--command=INSERT INTO accounts (id, host, group_name, tool, max_concurrency) SELECT h || '-codex', h, h || '-codex', 'codex', 1 FROM unnest('{ana,build}'::text[]) h;
		INSERT INTO worker_registry (worker_id, group_name, hostname, pid) VALUES (gen_random_uuid(), 'build', 'build', 1);
		UPDATE tasks SET leased_by = host || '-codex'; INSERT INTO task_files (task_id, host, path, is_input) SELECT id, host, 'x', FALSE FROM tasks WHERE host = 'build'`
	before := runPsql(t, url, "--file=testdata/postgres/rows.sql", more, rows)
	if want := "host | count\nana | 18\nbuild | 11\n"; before != want {
		t.Fatalf("got\n%s\nwant\n%s", before, want)
	}
	if got := runPsql(t, url, "--set=ON_ERROR_STOP=0", "--file="+forgetHost, rows); !strings.HasSuffix(got, before) {
		t.Errorf("without a name\n%s", got)
	}
	if got, want := runPsql(t, url, "--set=host=build", "--file="+forgetHost, rows), "host | count\nana | 18\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// migratedDatabase returns the URL of a new database with our schema.
func migratedDatabase(t *testing.T) string {
	t.Helper()
	url := postgrestest.Shared(t).Database(t)
	if _, _, err := postgres.Migrate(t.Context(), postgres.Options{URL: func() (string, error) { return url, nil }}); err != nil {
		t.Fatal(err)
	}
	return url
}

// runPsql runs psql as a person does, and gives what it prints.
func runPsql(t *testing.T, url string, args ...string) string {
	t.Helper()
	psql, err := exec.LookPath("psql")
	if err != nil {
		missing(t, "psql is not installed")
	}
	args = append([]string{
		"--no-psqlrc", "--quiet", "--no-align", "--field-separator= | ", "--pset=footer=off", "--set=ON_ERROR_STOP=1", "--dbname=" + url,
	}, args...)
	cmd := exec.CommandContext(t.Context(), psql, args...)
	cmd.Env = append(os.Environ(), "PGTZ=UTC")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// recentDay finds the days that depend on when the test runs.
var recentDay = regexp.MustCompile(`(?m)^20(2[5-9]|[3-9][0-9])-[0-9]{2}-[0-9]{2}`)

// checkQuestion looks for the question at a query's head.
func checkQuestion(t *testing.T, file string) {
	t.Helper()
	question, rest, _ := strings.Cut(fileText(t, file), "\n")
	if !strings.HasPrefix(question, "-- ") || !strings.HasSuffix(question, "?") {
		t.Errorf("%s does not begin with its question", file)
	}
	if strings.Count(rest, ";\n") != 1 {
		t.Errorf("%s is not a single statement", file)
	}
}

// fileText returns the content of a file.
func fileText(t *testing.T, path string) string {
	t.Helper()
	text := get(t, path)
	return string(text)
}
