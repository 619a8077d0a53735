package rundir

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stint/coordinator/redact"
	"stint/coordinator/task"
	"stint/state"
)

// secret stands in files that nothing of a run may see.
const secret = "the secret of somebody else"

// place is a workspace, a directory that is none of the agent's business, and a
// coordinator with one run's directory.
type place struct {
	t             *testing.T
	work, outside string
	run           string // directory of a run
}

func newPlace(t *testing.T) *place {
	t.Helper()
	dir := t.TempDir()
	p := &place{t: t, work: filepath.Join(dir, "work"), outside: filepath.Join(dir, "outside"), run: filepath.Join(dir, "state", "runs", "r")}
	p.must(os.MkdirAll(filepath.Join(p.run, FilesName), 0o700), os.Mkdir(p.work, 0o700), os.Mkdir(p.outside, 0o700))
	p.must(os.WriteFile(filepath.Join(p.outside, "secret"), []byte(secret), 0o600))
	return p
}

// newTemp is newPlace with a task's own directory as the workspace.
func newTemp(t *testing.T) *place {
	p := newPlace(t)
	top := filepath.Dir(p.work)
	work, err := OpenWork(filepath.Join(top, "data", "work"), filepath.Join(top, "state"))
	p.must(err)
	p.must(work.Mkdir("id", 0o700), work.Close())
	p.work, p.outside = filepath.Join(top, "data", "work", "id"), filepath.Join(top, "data", "outside")
	p.must(os.Rename(filepath.Join(top, "outside"), p.outside))
	p.must(os.Symlink("../outside", filepath.Join(top, "data", "work", "outside"))) // for the paths that lead one up
	return p
}

func (p *place) must(errs ...error) {
	p.t.Helper()
	if err := errors.Join(errs...); err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) in(path string) string { return filepath.Join(p.work, path) }

func (p *place) write(path, text string) {
	p.t.Helper()
	p.must(os.MkdirAll(filepath.Dir(p.in(path)), 0o700), os.WriteFile(p.in(path), []byte(text), 0o600))
}

// collected returns what lies in the run's directory files.
func (p *place) collected() map[string]string {
	p.t.Helper()
	found := map[string]string{}
	top := filepath.Join(p.run, FilesName)
	p.must(filepath.WalkDir(top, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		name, _ := filepath.Rel(top, path)
		found[name] = string(data)
		return err
	}))
	return found
}

// hostile fills the workspace with what an agent could put in place of a file, and gives the paths.
func (p *place) hostile() []string {
	p.write("dir/file", "x")
	p.write("results.txt", "fine")
	link := func(to, from string) { p.must(os.Symlink(to, p.in(from))) }
	link(filepath.Join(p.outside, "secret"), "link")
	link("../outside/secret", "link-relative")
	link("results.txt", "link-inside")
	link("link", "link-chain")
	link("link-loop", "link-loop")
	link("nowhere", "link-dangling")
	link("/proc/self/environ", "link-environ")
	link("/dev/zero", "link-zero")
	link(p.outside, "outside")
	link("..", "up")
	link("dir", "dirlink")
	link("/", "root")
	p.must(os.Link(filepath.Join(p.outside, "secret"), p.in("hard")), os.Link(p.in("dir/file"), p.in("dir/twin")))
	p.must(syscall.Mkfifo(p.in("fifo"), 0o600), syscall.Mkfifo(p.in("dir/fifo"), 0o600))
	for name, size := range map[string]int64{"sparse": 1 << 40, "large": maxOutput + 1} {
		p.write(name, "")
		p.must(os.Truncate(p.in(name), size))
	}
	paths := []string{
		"link", "link-relative", "link-inside", "link-chain", "link-loop", "link-dangling", "link-environ", "link-zero", "outside", "outside/secret",
		"up", "up/outside/secret", "up/work/results.txt", "dirlink/file", "root", "root/etc/passwd", "root/proc/self/environ", "root/proc/self/mem",
		"dirlink/../results.txt", "hard", "dir/file", "dir/twin", "fifo", "dir/fifo", "sparse", "large", "dir", "dir/", "fifo/x", "results.txt/x", "link/", "link-inside/",
		"link/x", "link-loop/x", "link-dangling/x", "dirlink", "dirlink/", "dirlink/missing", "up/x", "outside/x", "root/tmp/x", "hard/x", "sparse/x", "dir/fifo/x", "fifo/", "hard/",
	}
	return append(paths, p.specials()...)
}

// guarded writes files into directories that belong to other programs, and returns their paths.
func (p *place) guarded() (paths []string) {
	for _, dir := range []string{".git", ".GIT", ".Git", ".claude", ".codex", ".CODEX", ".gemini", "dir/.git", "dir/deep/.claude", ".git/hooks"} {
		p.write(filepath.Join(dir, "config"), secret)
		paths = append(paths, dir+"/config", dir, "./"+dir+"/config")
	}
	return paths
}

func guarded(name string) bool {
	return slices.Contains([]string{".git", ".claude", ".codex", ".gemini"}, strings.ToLower(name))
}

// specials makes a socket and, where we may, devices.
func (p *place) specials() []string {
	var paths []string
	dir, err := os.MkdirTemp("", "s") // the name of a socket is short
	p.must(err)
	p.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	p.must(err)
	p.t.Cleanup(func() { _ = l.Close() })
	if os.Rename(filepath.Join(dir, "s"), p.in("socket")) == nil {
		paths = append(paths, "socket")
	}
	for name, device := range map[string]int{"zero": 1<<8 | 5, "null": 1<<8 | 3, "random": 1<<8 | 8} {
		if syscall.Mknod(p.in(name), syscall.S_IFCHR|0o600, device) == nil {
			paths = append(paths, name)
		}
	}
	return paths
}

// badPaths are no paths of files in a workspace, whatever stands in it.
func badPaths(work, outside string) []string {
	paths := []string{
		"", ".", "./", ".//", "./.", "..", "../", "../..", "../outside/secret", "..//outside/secret", "./../outside/secret", "dir/../../outside/secret",
		"dir/../results.txt", "dir/..", "dir/../", "../work/results.txt", "../../../../../../../../etc/passwd", "dir/../../../etc/passwd", "results.txt/..", "results.txt/../results.txt",
		"/", "//", "/etc/passwd", "//etc/passwd", "/etc/../etc/passwd", "/proc/self/environ", "/proc/self/root/etc/passwd", "/proc/1/environ", "/dev/zero", "/dev/stdin",
		"/dev/fd/0", "/sys/power/state", "/root/.ssh/id_rsa", work + "/results.txt", outside + "/secret", "//" + outside + "/secret",
		"results.txt\x00", "\x00", "results.txt\x00.png", "\nresults.txt", "results.txt\n", "a\x1b[2Jb", "\x7f", "results\xff.txt", "\xc3\x28", "\rresults.txt",
		"missing", "dir/missing", "missing/missing", "Results.txt", "RESULTS.TXT", "results.txt ", " results.txt", "results.txt.", "results", "dir/FILE", "DIR/file",
		`..\outside\secret`, `dir\file`, `C:\secret`, "C:results.txt", `\\host\share`, "file:///etc/passwd", "~/.ssh/id_rsa", "$HOME/.ssh/id_rsa", "${HOME}", "$(id)", "`id`", "*", "*.txt", "dir/*", "?esults.txt",
		"%2e%2e/outside/secret", "..%2foutside%2fsecret", "．．/outside/secret", "dir／file", "..\u2215outside", "results.txt\u202e", "--help", "-", "results.txt;id", "|id", "results.txt:stream",
		strings.Repeat("a", 256), strings.Repeat("a", 5000), strings.Repeat("a/", 3000) + "a", strings.Repeat("../", 2000) + "etc/passwd", strings.Repeat("dir/../", 500) + "results.txt",
		"proc/self/environ", "etc/passwd", "dev/null", "...", "..../secret", ".../secret", ". ./secret", ".. /outside/secret", " ../outside/secret", "..;/outside/secret",
	}
	for _, sep := range []string{"", "/", "//", "/./", "/dir/"} {
		paths = append(paths, ".."+sep, "dir/../.."+sep+"/outside/secret", "."+sep+"../outside/secret")
	}
	return paths
}

// TestBadPaths: of all the paths that could lead out of a directory, block, or give more than a
// file of the agent's, none is collected, and an input of that name is refused or becomes a
// file of its own there, whatever stands in its place: in a workspace and in a directory below
// work_dir. What lies outside is afterwards as it was, also when that directory is removed.
func TestBadPaths(t *testing.T) {
	for what, make := range map[string]func(*testing.T) *place{"in place": newPlace, "temp": newTemp} {
		t.Run(what, func(t *testing.T) {
			p := make(t)
			paths := slices.Concat(p.hostile(), p.guarded(), badPaths(p.work, p.outside))
			if len(paths) < 180 {
				t.Errorf("%d paths, want 180", len(paths))
			}
			begun, refused := time.Now(), 0
			for _, path := range paths {
				taken, err := Collect(p.work, p.run, []string{path}, guarded, nil)
				if err == nil || len(taken) > 0 || !strings.Contains(err.Error(), "output file") {
					t.Errorf("%.60q was taken: %+v, %v", path, taken, err)
				}
			}
			if got := p.collected(); len(got) > 0 {
				t.Errorf("collected: %.300q", fmt.Sprint(got))
			}
			for _, path := range paths {
				if !p.takesInput(path) {
					refused++
				}
			}
			if took := time.Since(begun); took > 20*time.Second {
				t.Errorf("it took %v", took)
			}
			t.Logf("bad paths: %d; outputs refused=%d, inputs refused=%d", len(paths), len(paths), refused)
			root, err := openRoot(filepath.Dir(p.work))
			p.must(err)
			p.must(RemoveTree(root, filepath.Base(p.work)), root.Close())
			p.wantOutside()
		})
	}
}

// takesInput writes an input file of that name in a directory with what an agent could put in
// the place of files, and reports whether it was accepted: then it is a file of that directory, with that text or
// that of the agent's own file.
func (p *place) takesInput(path string) (accepted bool) {
	p.t.Helper()
	p.must(os.RemoveAll(p.work), os.Mkdir(p.work, 0o700))
	p.hostile()
	const text = "an input"
	spec := task.TaskSpec{InputFiles: []state.InputFile{{Name: path, Content: text}}}
	_, submitErr := task.CleanPath(path)
	if err := task.CheckInputFiles(&spec); (err == nil) != (submitErr == nil) {
		p.t.Errorf("%.60q is taken at submit: %v, and later: %v", path, err, submitErr)
	}
	written, err := WriteInputs(p.work, []state.InputFile{{Name: path, Content: text}})
	p.wantOutside()
	if err != nil {
		return false
	}
	dir := filepath.Dir(written[0])
	if real := task.WithoutLinks(p.work) + strings.TrimPrefix(dir, p.work); task.WithoutLinks(dir) != real {
		p.t.Errorf("%.60q was written to %s", path, task.WithoutLinks(dir))
	}
	fi, err := os.Lstat(written[0])
	p.must(err)
	if !fi.Mode().IsRegular() || statOf(fi).Nlink != 1 || !task.IsBelow(written[0], p.work) || submitErr != nil {
		p.t.Errorf("%.60q became %s: %v", path, written[0], fi.Mode())
	}
	if fi.Size() > 100 {
		p.t.Fatalf("%.60q has %d bytes", path, fi.Size())
	}
	if data, err := os.ReadFile(written[0]); err != nil || !slices.Contains([]string{text, "x", "fine"}, string(data)) {
		p.t.Errorf("%.60q is %.60q, %v", path, data, err)
	}
	return true
}

// wantOutside checks that nothing was written, made or removed outside of the agent's directory.
func (p *place) wantOutside() {
	p.t.Helper()
	data, err := os.ReadFile(filepath.Join(p.outside, "secret"))
	entries, listErr := os.ReadDir(p.outside)
	if string(data) != secret || len(entries) != 1 {
		p.t.Fatalf("outside: %q, %v, %v", data, entries, errors.Join(err, listErr))
	}
}

// TestOutputsOfOtherFileSystems: a workspace that is the whole machine gives nothing of the kernel's.
func TestOutputsOfOtherFileSystems(t *testing.T) {
	p := newPlace(t)
	for _, path := range []string{"proc/self/environ", "proc/self/mem", "proc/kmsg", "proc/version", "dev/null", "dev/zero", "dev/tty"} {
		if _, err := os.Stat("/" + path); err != nil {
			continue
		}
		if taken, err := Collect("/", p.run, []string{path}, guarded, nil); err == nil {
			t.Errorf("/%s was taken: %v", path, taken)
		}
	}
}

func TestOutputsAreCollected(t *testing.T) {
	p := newPlace(t)
	good := map[string]string{
		"results.txt": "fine\n", "out/table.csv": "a,b\n", "out/deep/er/x": "", "a b.txt": "b", "-rf": "r", "..data": "d", "ünï.txt": "u", "dot.git/x": "g", "$HOME": "h",
	}
	spec := []string{"./spelled//long.txt"}
	p.write("spelled/long.txt", "s")
	for path, text := range good {
		p.write(path, text)
		spec = append(spec, path)
	}
	good["spelled/long.txt"] = "s"
	for range 2 { // a second time, over the first
		taken, err := Collect(p.work, p.run, spec, guarded, nil)
		if err != nil || len(taken) != len(good) {
			t.Errorf("%d taken, %v", len(taken), err)
		}
		for _, f := range taken {
			if f.Size != int64(len(good[f.Path])) || len(f.SHA256) != 64 {
				t.Errorf("%+v", f)
			}
		}
	}
	if diff := cmp.Diff(good, p.collected()); diff != "" {
		t.Error(diff)
	}

	// What is there is taken though something else is not.
	taken, err := Collect(p.work, p.run, []string{"no-1", "results.txt", "no-2", "no-3", "no-4", "no-5", "no-6", "no-7"}, guarded, nil)
	if err == nil || len(taken) != 1 || !strings.Contains(err.Error(), `the output file "no-2" is missing`) || !strings.HasSuffix(err.Error(), `"no-7" is missing`) {
		t.Errorf("%v, %v", taken, err)
	}
}

// TestOutputsDoNotLeaveTheRun: links that an agent has laid in the run's own directory lead nowhere.
func TestOutputsDoNotLeaveTheRun(t *testing.T) {
	p := newPlace(t)
	p.write("a/victim", "overwritten")
	p.write("victim", "overwritten")
	files := filepath.Join(p.run, FilesName)
	victim := filepath.Join(p.outside, "victim")
	p.must(os.WriteFile(victim, []byte("mine"), 0o600), os.Symlink(victim, filepath.Join(files, "victim")), os.Symlink(p.outside, filepath.Join(files, "a")))
	_, err := Collect(p.work, p.run, []string{"a/victim", "victim"}, guarded, nil)
	if err == nil || !strings.Contains(err.Error(), "could not be copied") {
		t.Errorf("a directory outside was taken for the run's: %v", err)
	}
	p.must(os.RemoveAll(files), os.Symlink(p.outside, files))
	if _, err := Collect(p.work, p.run, []string{"victim"}, guarded, nil); err == nil {
		t.Error("the run's directory files was taken to be outside")
	}
	if data, err := os.ReadFile(victim); string(data) != "mine" {
		t.Errorf("a file outside is now %q, %v", data, err)
	}
}

// TestOutputSwappedWhileRead: something that exchanges a file or its directory for a
// link, again and again, never makes us collect what lies outside.
func TestOutputSwappedWhileRead(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.write("d1/secret", "mine")
	p.must(os.Symlink(p.outside, p.in("d2")), syscall.Mkfifo(p.in("f1"), 0o600), os.Symlink(filepath.Join(p.outside, "secret"), p.in("f2")))
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			for _, names := range [][2]string{{"d1", "d"}, {"d", "d1"}, {"d2", "d"}, {"d", "d2"}, {"f1", "f"}, {"f", "f1"}, {"f2", "f"}, {"f", "f2"}} {
				_ = os.Rename(p.in(names[0]), p.in(names[1])) // a name may be in use just then
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	got := 0
	for range 10_000 {
		taken, _ := Collect(p.work, p.run, []string{"d/secret", "f"}, guarded, nil)
		got += len(taken)
		for _, f := range taken {
			if f.Size != 4 {
				t.Fatalf("collected %+v", f)
			}
		}
	}
	close(stop)
	<-ended
	for path, text := range p.collected() {
		if strings.Contains(text, secret) {
			t.Errorf("%s is %q", path, text)
		}
	}
	if got == 0 {
		t.Error("the file itself was never there: nothing was tried")
	}
}

func TestInputFiles(t *testing.T) {
	p := newPlace(t)
	dir := filepath.Join(p.run, FilesName)
	paths, err := WriteInputs(dir, []state.InputFile{{Name: "notes.txt", Content: "n"}, {Name: "data/a b.csv", Content: "1,2\n"}, {Name: "./x//y", Content: ""}})
	want := []string{filepath.Join(dir, "notes.txt"), filepath.Join(dir, "data/a b.csv"), filepath.Join(dir, "x/y")}
	if diff := cmp.Diff(want, paths); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if diff := cmp.Diff(map[string]string{"notes.txt": "n", "data/a b.csv": "1,2\n", "x/y": ""}, p.collected()); diff != "" {
		t.Error(diff)
	}
	for _, name := range []string{"", ".", "..", "../x", "a/../../x", "/etc/x", "a\x00b", "a\nb", strings.Repeat("n", 300), "notes.txt/x", "data"} {
		var wrong *task.FileError
		if _, err := WriteInputs(dir, []state.InputFile{{Name: name, Content: "bad"}}); !errors.As(err, &wrong) {
			t.Errorf("%.20q: %v", name, err)
		}
	}
	if got := p.collected(); len(got) != 3 {
		t.Errorf("%v", got)
	}
}

// TestCollectedCopiesAreMasked: a collected file has no secret, and its size and digest are those of the masked text.
func TestCollectedCopiesAreMasked(t *testing.T) {
	p := newPlace(t)
	p.write("report", strings.Repeat("x", 32<<10-3)+"a secret")
	taken, err := Collect(p.work, p.run, []string{"report"}, guarded, redact.New(func() []string { return []string{"a secret"} }))
	p.must(err)
	text, err := os.ReadFile(filepath.Join(p.run, FilesName, "report"))
	p.must(err)
	sum := sha256.Sum256(text)
	if !strings.HasSuffix(string(text), "x********") || taken[0].Size != int64(len(text)) || taken[0].SHA256 != hex.EncodeToString(sum[:]) {
		t.Errorf("%+v, %d bytes: %q", taken, len(text), text[len(text)-20:])
	}
}
