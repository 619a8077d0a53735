package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"stint/coordinator/postgres"
	"stint/coordinator/postgres/postgrestest"
)

// TestExampleQueries: each query of the examples says its question, is a single
// statement that changes nothing, and gives for a few rows what the golden file has.
// They are run as a person runs them; one transaction gives all the same "now".
func TestExampleQueries(t *testing.T) {
	psql, err := exec.LookPath("psql")
	if err != nil {
		missing(t, "psql is not installed")
	}
	queries, err := filepath.Glob(filepath.Join(examplesDir, "postgres", "*.sql"))
	if err != nil || len(queries) < 9 {
		t.Fatal(queries, err)
	}
	url := postgrestest.Shared(t).Database(t)
	if _, _, err := postgres.Migrate(t.Context(), postgres.Options{URL: func() (string, error) { return url, nil }}); err != nil {
		t.Fatal(err)
	}
	args := []string{
		"--no-psqlrc", "--quiet", "--no-align", "--field-separator= | ", "--pset=footer=off", "--set=ON_ERROR_STOP=1", "--set=task=docs",
		"--single-transaction", "--dbname=" + url, "--file=testdata/postgres/rows.sql", "--command=SET TRANSACTION READ ONLY",
	}
	for _, query := range queries {
		checkQuestion(t, query)
		args = append(args, "--command=\\echo == "+filepath.Base(query), "--file="+query)
	}
	cmd := exec.CommandContext(t.Context(), psql, args...)
	cmd.Env = append(os.Environ(), "PGTZ=UTC")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got := recentDay.ReplaceAllString(string(out), "(of late)")
	if want := fileText(t, "testdata/postgres/answers.golden"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
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

// fileText gives the content of a file.
func fileText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
