package coordinator_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// nano is the editor of that name at a terminal of its own. Keys go in, and what
// is on the screen tells how far it is.
type nano struct {
	file editedFile
	tty  *os.File // the other end of its terminal
	cmd  *exec.Cmd
	done chan error

	mu     sync.Mutex
	screen []byte        // what it has written since the last key; guarded by mu
	more   chan struct{} // it has written something
}

func (n *nano) load() error {
	tty, terminal, err := openTerminal()
	if err != nil {
		return err
	}
	n.tty, n.done, n.more = tty, make(chan error, 1), make(chan struct{}, 1)
	n.cmd = exec.Command("nano", "--ignorercfiles", n.file.path)
	n.cmd.Stdin, n.cmd.Stdout, n.cmd.Stderr = terminal, terminal, terminal
	n.cmd.Env = append(os.Environ(), "TERM=xterm", "LC_ALL=C.UTF-8")
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := errors.Join(n.cmd.Start(), terminal.Close()); err != nil {
		return err
	}
	go n.watch()
	_, err = n.sees("Read ")
	return err
}

// openTerminal returns both ends of a new terminal that is large enough for nano to say all it has to say.
func openTerminal() (tty, terminal *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	tty = os.NewFile(uintptr(fd), "/dev/ptmx") // pollable: closing it ends a read
	if err := errors.Join(
		unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0),
		unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: 200}),
	); err != nil {
		return nil, nil, errors.Join(err, tty.Close())
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, nil, errors.Join(err, tty.Close())
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	return tty, terminal, err
}

// watch collects what is written to the screen until nano has ended.
func (n *nano) watch() {
	buf := make([]byte, 4096)
	for {
		k, err := n.tty.Read(buf)
		n.mu.Lock()
		n.screen = append(n.screen, buf[:k]...)
		n.mu.Unlock()
		select {
		case n.more <- struct{}{}:
		default: // it is known
		}
		if err != nil { // EIO: the other end is closed
			n.done <- n.cmd.Wait()
			return
		}
	}
}

// sees waits until one of the texts was written, and returns it.
func (n *nano) sees(texts ...string) (string, error) {
	limit := time.After(patience)
	for {
		n.mu.Lock()
		screen := bytes.Clone(n.screen)
		n.mu.Unlock()
		for _, text := range texts {
			if bytes.Contains(screen, []byte(text)) {
				return text, nil
			}
		}
		select {
		case <-n.more:
		case <-limit:
			return "", fmt.Errorf("nano never said %q, but %q", texts, screen)
		}
	}
}

// press sends keys, and forgets what was on the screen before.
func (n *nano) press(keys string) error {
	n.mu.Lock()
	n.screen = n.screen[:0]
	n.mu.Unlock()
	_, err := n.tty.WriteString(keys)
	return err
}

// Keys of nano.
const (
	keyGoTo    = "\x1bg"
	keyLast    = "\x1b/"
	keyCutLine = "\x0b"
	keySave    = "\x0f\r" // write out, under the same name
	keyExit    = "\x18"
)

func (n *nano) save(edits []lineEdit, _ func()) error {
	for _, e := range edits {
		to := keyGoTo + fmt.Sprint(e.at) + "\r"
		if e.at == behind {
			to = keyLast
		}
		keys := to + strings.Repeat(keyCutLine, e.cut)
		for _, line := range e.add {
			keys += line + "\r"
		}
		if err := n.press(keys); err != nil {
			return err
		}
	}
	if err := n.press(keySave); err != nil {
		return err
	}
	said, err := n.sees("Wrote ", "ontinue saving")
	if err != nil || said == "Wrote " {
		return err
	}
	if err := n.press("y"); err != nil { // the file has changed on the disk: save all the same
		return err
	}
	_, err = n.sees("Wrote ")
	return err
}

func (n *nano) quit() error {
	if err := n.press(keyExit); err != nil {
		return err
	}
	return errors.Join(<-n.done, n.tty.Close())
}
