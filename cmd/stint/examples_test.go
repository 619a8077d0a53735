package main

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

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
		short := k.short()
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

// TestExampleInsert: the manual has the statement as the file has it, which makes one shared task, with what it asks for.
func TestExampleInsert(t *testing.T) {
	file := filepath.Join(examplesDir, "shared", "insert.sql")
	_, statement, _ := strings.Cut(fileText(t, file), "\nINSERT ")
	if !strings.Contains(fileText(t, "help/shared.md"), "\n```text\nINSERT "+statement+"```\n") {
		t.Errorf("help/shared.md has another statement than\n%s", statement)
	}
	got := runPsql(t, migratedDatabase(t), "--file="+file, "--file="+file, "--tuples-only",
		"--command=SELECT host, status, tool, tenant_id, queue, priority, input_files->0->>'name', output_spec, output_files, idempotency_key FROM tasks")
	if want := ` | queued | codex | default | default | 5 | notes.md | ["notes.fr.md"] |  | notes-fr` + "\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// forgetHost is the one example that changes something.
var forgetHost = filepath.Join(examplesDir, "postgres", "forget_host.sql")

// TestForgetHost: of the host that is named no row is left, and of others, and of the shared queue, all are.
// Without a name nothing goes.
func TestForgetHost(t *testing.T) {
	url := migratedDatabase(t)
	const rows = `--command=SELECT host, count(*) FROM (SELECT host FROM tasks UNION ALL SELECT host FROM task_runs UNION ALL SELECT host FROM task_files
		UNION ALL SELECT host FROM accounts UNION ALL SELECT hostname FROM worker_registry UNION ALL SELECT host FROM mirrors) r GROUP BY host ORDER BY host`
	const more = `--command=INSERT INTO accounts (id, host, group_name, tool, max_concurrency) SELECT h || '-codex', h, h || '-codex', 'codex', 1 FROM unnest('{ana,build}'::text[]) h;
		INSERT INTO worker_registry (worker_id, hostname, pid) VALUES ('00000000-0000-0000-0000-00000000000b', 'build', 1);
		UPDATE mirrors SET worker_id = '00000000-0000-0000-0000-00000000000b' WHERE host = 'build';
		UPDATE tasks SET leased_by = host || '-codex'; INSERT INTO task_files (task_id, host, path, is_input) SELECT id, host, 'x', FALSE FROM tasks WHERE host = 'build';
		INSERT INTO accounts (id, tool, max_concurrency) VALUES ('codex-main', 'codex', 1); INSERT INTO worker_registry (worker_id, group_name, hostname, pid) VALUES (gen_random_uuid(), 'codex-main', 'shared', 1);
		WITH t AS (INSERT INTO tasks (prompt) VALUES ('shared') RETURNING id) INSERT INTO task_files (task_id, host, path, is_input) SELECT id, 'shared', 'x', FALSE FROM t`
	before := runPsql(t, url, "--file=testdata/postgres/rows.sql", more, rows)
	if want := "host | count\nana | 18\nbuild | 11\nshared | 2\n | 2\n"; before != want {
		t.Fatalf("got\n%s\nwant\n%s", before, want)
	}
	if got := runPsql(t, url, "--set=ON_ERROR_STOP=0", "--file="+forgetHost, rows); !strings.HasSuffix(got, before) {
		t.Errorf("without a name\n%s", got)
	}
	if got, want := runPsql(t, url, "--set=host=build", "--file="+forgetHost, rows), "host | count\nana | 18\nshared | 2\n | 2\n"; got != want {
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

// A composeFile has what examples/shared/compose.yaml uses of the format; any other field is an error.
type composeFile struct {
	Services map[string]struct {
		Image, User, Hostname, Restart string
		Init                           bool
		Command                        []string
		Environment                    map[string]string
		Secrets, Volumes               []string
		StopGracePeriod                time.Duration                         `yaml:"stop_grace_period"`
		DependsOn                      map[string]struct{ Condition string } `yaml:"depends_on"`
		Healthcheck                    struct {
			Test     []string
			Interval time.Duration
		}
	}
	Volumes map[string]struct{}
	Secrets map[string]struct{ File string }
}

// TestExampleCompose: there are two workers that share the database and nothing else, each keeps its name and what it knows, and has time to drain.
func TestExampleCompose(t *testing.T) {
	text := get(t, filepath.Join(examplesDir, "shared", "compose.yaml"))
	var f composeFile
	decodeYAML(t, text, &f)
	if names := slices.Sorted(maps.Keys(f.Services)); !slices.Equal(names, []string{"database", "worker-1", "worker-2"}) {
		t.Fatalf("services %q", names)
	}
	for name, s := range f.Services {
		for _, secret := range s.Secrets {
			if f.Secrets[secret].File == "" || !strings.Contains(string(text), "\n#   secrets/"+secret+" ") {
				t.Errorf("%s: the secret %s has no file, or none that is described", name, secret)
			}
		}
		for _, volume := range s.Volumes {
			if v, _, _ := strings.Cut(volume, ":"); v != name {
				t.Errorf("%s uses the volume %q", name, v)
			} else if _, ok := f.Volumes[v]; !ok {
				t.Errorf("there is no volume %q", v)
			}
		}
		if name == "database" {
			continue
		}
		if s.Hostname != name || s.StopGracePeriod < time.Hour || s.Restart != "on-failure" || s.DependsOn["database"].Condition != "service_healthy" {
			t.Errorf("%s: %+v", name, s)
		}
		checkWorkerCommand(t, name, s.Command)
		checkSettings(t, s.Environment)
	}
	checkCommands(t, string(text))
}

type container struct {
	Name, Image string
	Command     []string
	Env         []struct{ Name, Value string }
	Resources   map[string]map[string]string
	Security    struct {
		AllowPrivilegeEscalation bool                `yaml:"allowPrivilegeEscalation"`
		Capabilities             map[string][]string `yaml:"capabilities"`
	} `yaml:"securityContext"`
	Mounts []struct {
		Name      string
		MountPath string `yaml:"mountPath"`
		ReadOnly  bool   `yaml:"readOnly"`
	} `yaml:"volumeMounts"`
}

// A statefulSet has what examples/shared/kubernetes.yaml uses of it; any other field is an error.
type statefulSet struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct {
		Name   string
		Labels map[string]string
	}
	Spec struct {
		Replicas            int
		ServiceName         string `yaml:"serviceName"`
		PodManagementPolicy string `yaml:"podManagementPolicy"`
		Selector            struct {
			MatchLabels map[string]string `yaml:"matchLabels"`
		}
		Template struct {
			Metadata struct{ Labels map[string]string }
			Spec     struct {
				Automount      *bool          `yaml:"automountServiceAccountToken"`
				ShareProcesses bool           `yaml:"shareProcessNamespace"`
				GraceSeconds   int            `yaml:"terminationGracePeriodSeconds"`
				Security       map[string]any `yaml:"securityContext"`
				Init           []container    `yaml:"initContainers"`
				Containers     []container
				Volumes        []struct {
					Name   string
					Secret struct {
						SecretName string `yaml:"secretName"`
					}
					EmptyDir struct{ Medium string } `yaml:"emptyDir"`
				}
			}
		}
		Claims []struct {
			Metadata struct{ Name string }
			Spec     struct {
				AccessModes []string `yaml:"accessModes"`
				Resources   map[string]map[string]string
			}
		} `yaml:"volumeClaimTemplates"`
	}
}

// TestExampleKubernetes: the pods are those of the set, mount what there is, hold no secret of their own, and have time to drain.
func TestExampleKubernetes(t *testing.T) {
	text := get(t, filepath.Join(examplesDir, "shared", "kubernetes.yaml"))
	var s statefulSet
	decodeYAML(t, text, &s)
	pod := s.Spec.Template.Spec
	if s.APIVersion != "apps/v1" || s.Kind != "StatefulSet" || !maps.Equal(s.Spec.Selector.MatchLabels, s.Spec.Template.Metadata.Labels) || len(pod.Init) != 1 || len(pod.Containers) != 1 {
		t.Fatalf("%+v", s)
	}
	if pod.GraceSeconds < 3600 || pod.Automount == nil || *pod.Automount || pod.Security["runAsNonRoot"] != true || pod.Containers[0].Security.AllowPrivilegeEscalation {
		t.Errorf("%+v", pod)
	}
	volumes := map[string]bool{}
	for _, v := range pod.Volumes {
		volumes[v.Name] = (v.Secret.SecretName == "") != (v.EmptyDir.Medium == "")
	}
	for _, c := range s.Spec.Claims {
		volumes[c.Metadata.Name] = slices.Equal(c.Spec.AccessModes, []string{"ReadWriteOncePod"})
	}
	for _, c := range slices.Concat(pod.Init, pod.Containers) {
		for _, m := range c.Mounts {
			if !volumes[m.Name] || !filepath.IsAbs(m.MountPath) {
				t.Errorf("%s mounts %+v", c.Name, m)
			}
		}
	}
	env := map[string]string{}
	for _, e := range pod.Containers[0].Env {
		env[e.Name] = e.Value
	}
	checkSettings(t, env)
	checkWorkerCommand(t, "the pod", pod.Containers[0].Command)
	if setup := pod.Init[0].Command; len(setup) != 3 || setup[0] != "sh" {
		t.Errorf("the pod is set up by %q", setup)
	} else if err := commandsExist(setup[2]); err != nil {
		t.Error(err)
	}
	checkCommands(t, string(text))
}

// TestExampleUnit: systemd reads the unit without a word, it drains for as long as that takes, and starts a worker.
func TestExampleUnit(t *testing.T) {
	file := filepath.Join(examplesDir, "shared", "stint-worker.service")
	text := fileText(t, file)
	for _, line := range []string{"Type=exec", "KillMode=mixed", "TimeoutStopSec=infinity", "Restart=on-failure", "OOMPolicy=continue"} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("the unit lacks %s", line)
		}
	}
	_, command, _ := strings.Cut(text, "\nExecStart=")
	program, rest, _ := strings.Cut(command, " ")
	rest, _, _ = strings.Cut(rest, "\n")
	checkWorkerCommand(t, "the unit", append([]string{filepath.Base(program)}, strings.Fields(rest)...))
	checkCommands(t, text)
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		missing(t, "systemd-analyze is not installed")
	}
	dir := t.TempDir()
	stint := put(t, filepath.Join(dir, "stint"), "#!/bin/sh\n")
	must(t, os.Chmod(stint, 0o700))
	cmd := exec.CommandContext(t.Context(), "systemd-analyze", "verify", put(t, filepath.Join(dir, "stint-worker.service"), strings.ReplaceAll(text, program, stint)))
	cmd.Env = append(os.Environ(), "SYSTEMD_LOG_TARGET=console", "SYSTEMD_LOG_LEVEL=info")
	if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), "stint-worker") {
		t.Errorf("%v: %s", err, out)
	}
}

// decodeYAML decodes a single document whose fields v has all.
func decodeYAML(t *testing.T, text []byte, v any) {
	t.Helper()
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	must(t, d.Decode(v))
	if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
		t.Errorf("there is a second document: %v", err)
	}
}

// checkSettings checks that each variable is a key of the configuration.
func checkSettings(t *testing.T, env map[string]string) {
	t.Helper()
	for name := range env {
		if !slices.ContainsFunc(keys, func(k key) bool { return k.env() == name }) {
			t.Errorf("no key of the configuration is %s", name)
		}
	}
}

// checkWorkerCommand checks that a command line starts a worker.
func checkWorkerCommand(t *testing.T, where string, command []string) {
	t.Helper()
	line := strings.Join(command, " ")
	if !strings.HasPrefix(line, "stint worker start ") {
		t.Errorf("%s runs %q", where, line)
	}
	checkCommands(t, "#   "+line)
}

// checkCommands checks that stint takes each command line of the comments at the head of an example, whatever runs it.
func checkCommands(t *testing.T, text string) {
	t.Helper()
	for _, match := range exampleCommand.FindAllStringSubmatch(text, -1) {
		if err := commandsExist(match[1]); err != nil {
			t.Error(err)
		}
	}
}

// exampleCommand finds what stands indented in comments, behind what runs it in another place.
var exampleCommand = regexp.MustCompile(`(?m)^#   (?:.* (?:--|-i|worker-\d) )?(stint .*)$`)
