package coordinator_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// An editedFile is the file that an editor saves.
type editedFile struct {
	path  string
	aside string // a directory of the editor's own
}

// An editor is one way to save a file. Its methods are called by one goroutine, in this order.
type editor interface {
	// load makes the program read the file.
	load() error
	// save makes the edits in what was read and writes it to the file, whatever is
	// there meanwhile; again with no edits it writes the same once more. mid is
	// called in the midst of the write, where that can be done.
	save(edits []lineEdit, mid func()) error
	quit() error
}

type saver struct {
	name string
	open func(editedFile) editor
}

// savers are the ways to save a file. Some write to the same inode, some put
// another file in its place, and Vim does one or the other.
var savers = []saver{
	{"nano", func(f editedFile) editor { return &nano{file: f} }},
	{"vim", func(f editedFile) editor { return &vim{file: f} }},
	{"vim-backupcopy-yes", func(f editedFile) editor { return &vim{file: f, backupcopy: "yes"} }},
	{"vim-backupcopy-no", func(f editedFile) editor { return &vim{file: f, backupcopy: "no"} }},
	{"sed", func(f editedFile) editor { return &filter{file: f, command: sedCommand} }},
	{"perl", func(f editedFile) editor { return &filter{file: f, command: perlCommand} }},
	{"in-place", func(f editedFile) editor { return &buffer{file: f, write: inPlace} }},
	{"in-place-no-newline", func(f editedFile) editor { return &buffer{file: f, write: withoutNewline} }},
	{"rename", func(f editedFile) editor { return &buffer{file: f, write: byRename} }},
	{"git-checkout", func(f editedFile) editor { return &buffer{file: f, write: byGit} }},
	{"cp", func(f editedFile) editor { return &buffer{file: f, write: byCopy} }},
	{"slow", func(f editedFile) editor { return &buffer{file: f, write: slowly} }},
	{"syncthing", func(f editedFile) editor { return &buffer{file: f, write: bySync} }},
}

func saverNamed(name string) *saver {
	for i := range savers {
		if savers[i].name == name {
			return &savers[i]
		}
	}
	return nil
}

// buffer is an editor that keeps the text in its memory.
type buffer struct {
	file  editedFile
	write func(f editedFile, text string, mid func()) error
	text  string
}

func (b *buffer) load() error {
	data, err := os.ReadFile(b.file.path)
	b.text = string(data)
	return err
}

func (b *buffer) save(edits []lineEdit, mid func()) error {
	if len(edits) > 0 {
		b.text = applyEdits(b.text, edits)
	}
	return b.write(b.file, b.text, mid)
}

func (b *buffer) quit() error { return nil }

// inPlace truncates and writes, as VS Code does.
func inPlace(f editedFile, text string, mid func()) error {
	return rewrite(f.path, func(file *os.File) error {
		half := len(text) / 2
		if _, err := file.WriteString(text[:half]); err != nil {
			return err
		}
		mid()
		_, err := file.WriteString(text[half:])
		return err
	})
}

func rewrite(path string, write func(*os.File) error) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	return errors.Join(write(file), file.Close())
}

// withoutNewline is VS Code with its defaults, where the person left none.
func withoutNewline(f editedFile, text string, mid func()) error {
	return inPlace(f, strings.TrimRight(text, "\n"), mid)
}

func byRename(f editedFile, text string, mid func()) error {
	tmp := f.path + ".tmp"
	if err := os.WriteFile(tmp, []byte(text), 0o600); err != nil {
		return err
	}
	mid()
	return os.Rename(tmp, f.path)
}

// bySync puts a file of another machine in the place: its time is older than that of what was there.
func bySync(f editedFile, text string, mid func()) error {
	tmp := filepath.Join(filepath.Dir(f.path), ".syncthing.tasks.md.tmp")
	if err := os.WriteFile(tmp, []byte(text), 0o600); err != nil {
		return err
	}
	mid()
	old := time.Now().Add(-time.Hour)
	return errors.Join(os.Chtimes(tmp, old, old), os.Rename(tmp, f.path))
}

// slowly truncates, waits for longer than a save may rest, and writes in small pieces. They are few, because
// a machine that is busy may stop it between any two of them for so long that the master takes the save for
// finished and appends; what is written over that later is damaged.
func slowly(f editedFile, text string, _ func()) error {
	piece := len(text)/20 + 1
	return rewrite(f.path, func(file *os.File) error {
		time.Sleep(500 * time.Millisecond)
		for len(text) > 0 {
			n := min(piece, len(text))
			if _, err := file.WriteString(text[:n]); err != nil {
				return err
			}
			text = text[n:]
		}
		return nil
	})
}

func byCopy(f editedFile, text string, mid func()) error {
	old := filepath.Join(f.aside, "old")
	if err := os.WriteFile(old, []byte(text), 0o600); err != nil {
		return err
	}
	mid()
	return runProgram(exec.Command("cp", old, f.path))
}

// byGit checks the text out of a repository that lies elsewhere.
func byGit(f editedFile, text string, mid func()) error {
	git := func(stdin string, args ...string) (string, error) {
		cmd := exec.Command("git", append([]string{"--git-dir", filepath.Join(f.aside, "git"), "--work-tree", filepath.Dir(f.path)}, args...)...)
		cmd.Dir = filepath.Dir(f.path)
		cmd.Stdin = strings.NewReader(stdin)
		var out bytes.Buffer
		cmd.Stdout = &out
		err := runProgram(cmd)
		return strings.TrimSpace(out.String()), err
	}
	if _, err := git("", "init", "--quiet"); err != nil {
		return err
	}
	hash, err := git(text, "hash-object", "-w", "--stdin")
	if err != nil {
		return err
	}
	if _, err := git("", "update-index", "--add", "--cacheinfo", "100644,"+hash+",tasks.md"); err != nil {
		return err
	}
	mid()
	_, err = git("", "checkout", "--", "tasks.md")
	return err
}

// runProgram runs a command to its end; the error has what it said.
func runProgram(cmd *exec.Cmd) error {
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, said.Bytes())
	}
	return nil
}

// filter is sed or perl with -i: it has the file open, and has made the new one,
// before it reads the first line, and waits there until it is to go on.
type filter struct {
	file    editedFile
	command func(f editedFile, edits []lineEdit) *exec.Cmd
}

func (f *filter) load() error { return nil }

func (f *filter) save(edits []lineEdit, mid func()) error {
	for _, name := range []string{"began", "go"} {
		_ = os.Remove(filepath.Join(f.file.aside, name))
	}
	done := make(chan error, 1)
	go func() { done <- runProgram(f.command(f.file, edits)) }()
	if err := awaitFile(filepath.Join(f.file.aside, "began"), done, nil); err != nil {
		return err
	}
	mid()
	if err := os.WriteFile(filepath.Join(f.file.aside, "go"), nil, 0o600); err != nil {
		return err
	}
	return <-done
}

func (f *filter) quit() error { return nil }

// awaitFile waits until a program has made a file, or has ended. It calls remind,
// if that is not nil, from time to time.
func awaitFile(path string, done <-chan error, remind func() error) error {
	start := time.Now()
	for i := 1; ; i++ {
		if _, err := os.Stat(path); err == nil {
			return nil
		}
		select {
		case err := <-done:
			return fmt.Errorf("it ended too early: %w", err)
		case <-time.After(2 * time.Millisecond):
		}
		if time.Since(start) > patience {
			return fmt.Errorf("%s never came", filepath.Base(path))
		}
		if i%20 == 0 && remind != nil {
			if err := remind(); err != nil {
				return err
			}
		}
	}
}

// sedCommand says the edits as a script of sed's.
func sedCommand(f editedFile, edits []lineEdit) *exec.Cmd {
	script := "1e touch began; until [ -e go ]; do sleep 0.003; done\n"
	cuts := ""
	text := strings.NewReplacer(`\`, `\\`, "\n", "\\\n")
	for _, e := range edits {
		at := fmt.Sprintf("%di", e.at)
		if e.at == behind {
			at = "$a"
		}
		if len(e.add) > 0 {
			script += at + "\\\n" + text.Replace(strings.Join(e.add, "\n")) + "\n"
		}
		if e.cut > 0 {
			cuts += fmt.Sprintf("%d,%dd\n", e.at, e.at+e.cut-1)
		}
	}
	cmd := exec.Command("sed", "-i", script+cuts, f.path)
	cmd.Dir = f.aside
	return cmd
}

// perlCommand says them in Perl.
func perlCommand(f editedFile, edits []lineEdit) *exec.Cmd {
	program := `if ($. == 1) { open F, ">", "began"; close F; select(undef, undef, undef, 0.003) until -e "go"; }` + "\n"
	keep, last := "print unless 0", ""
	quote := strings.NewReplacer(`\`, `\\`, `'`, `\'`)
	for _, e := range edits {
		text := "'" + quote.Replace(strings.Join(e.add, "\n")) + "\n'"
		switch {
		case e.at == behind:
			last += "print " + text + " if eof;\n"
		case len(e.add) > 0:
			program += fmt.Sprintf("print %s if $. == %d;\n", text, e.at)
		}
		if e.cut > 0 {
			keep += fmt.Sprintf(" || $. >= %d && $. < %d", e.at, e.at+e.cut)
		}
	}
	cmd := exec.Command("perl", "-i", "-ne", program+keep+";\n"+last, f.path)
	cmd.Dir = f.aside
	return cmd
}

// vim is Vim without its screen. It reads commands as they come.
type vim struct {
	file       editedFile
	backupcopy string // "": Vim's default, auto
	in         io.WriteCloser
	done       chan error
	steps      int
}

func (v *vim) load() error {
	cmd := exec.Command("vim", "-Nu", "NONE", "-i", "NONE", "-es", v.file.path)
	var err error
	if v.in, err = cmd.StdinPipe(); err != nil {
		return err
	}
	v.done = make(chan error, 1)
	started := make(chan error, 1)
	go func() {
		err := cmd.Start()
		started <- err
		if err == nil {
			v.done <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	first := "autocmd BufWritePost * call writefile([], g:mark)\n"
	if v.backupcopy != "" {
		first += "set backupcopy=" + v.backupcopy + "\n"
	}
	mark := v.mark()
	if _, err := fmt.Fprintf(v.in, "%scall writefile([], '%s')\n", first, mark); err != nil {
		return err
	}
	return awaitFile(mark, v.done, nil)
}

// mark returns the name of a file that Vim is to make when it has done the next step.
func (v *vim) mark() string {
	v.steps++
	return filepath.Join(v.file.aside, fmt.Sprint("step", v.steps))
}

func (v *vim) save(edits []lineEdit, _ func()) error {
	mark := v.mark()
	commands := "let g:mark = '" + mark + "'\n"
	for _, e := range edits {
		at := fmt.Sprint(e.at - 1)
		if e.at == behind {
			at = "$"
		}
		if e.cut > 0 {
			commands += fmt.Sprintf("%d,%ddelete _\n", e.at, e.at+e.cut-1)
		}
		if len(e.add) > 0 {
			commands += fmt.Sprintf("%sappend\n%s\n.\n", at, strings.Join(e.add, "\n"))
		}
	}
	if _, err := io.WriteString(v.in, commands+"write!\n"); err != nil {
		return err
	}
	return awaitFile(mark, v.done, v.insist)
}

// insist says yes: where the file has changed on the disk, Vim asks whether it is to
// write all the same. Where it does not ask, this is a command that changes nothing.
func (v *vim) insist() error {
	_, err := io.WriteString(v.in, "y\n")
	return err
}

func (v *vim) quit() error {
	_, err := io.WriteString(v.in, "quit!\n")
	_ = v.in.Close() // Vim may have gone already
	return errors.Join(err, <-v.done)
}
