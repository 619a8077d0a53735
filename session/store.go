package session

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"stint/ledger/durable"
	"stint/state"
)

// Options say how to open a Store.
type Options struct {
	Dir      string                 // the state directory; must exist
	FS       durable.FS             // nil: the machine's
	List     func() []state.Session // the current sessions: the store's goroutine asks for them before each write; one whose id is not valid is left out
	Interval time.Duration          // a change is written this much later, with all that came in between
	Gone     func() bool            // says that Dir is not ours any more: nothing is written; nil: it never is
	OnError  func(error)            // called by the store's goroutine when a write failed; nil: only Close returns it
	OnAside  func(string)           // called with the new name of what stood in the file's place and was no file; may be nil
}

// A Store writes sessions.json. Its methods may be called by any goroutine. The file is replaced as a whole by a goroutine of
// the store's own, at most once in an interval and only after a change: writing 10,000 sessions takes 24 ms, which is too much
// to do for every run, and more of them make the interval longer. After a crash the file may thus be one interval old, or
// missing: a store that is opened looks what it should have. Nothing is written where the file says the same.
type Store struct {
	opts  Options
	file  string
	last  [sha256.Size]byte // of what the file has; flush alone uses it
	wake  chan struct{}     // capacity 1: something may have changed
	stop  chan struct{}     // closed by Close
	done  chan struct{}     // closed when the goroutine has ended
	close func() error
}

// Open returns a store. The caller calls Close.
func Open(o Options) *Store {
	o.FS = cmp.Or(o.FS, durable.OS)
	s := &Store{opts: o, file: filepath.Join(o.Dir, "sessions.json"), wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	s.close = sync.OnceValue(func() error {
		close(s.stop)
		<-s.done
		return s.flush()
	})
	data, err := durable.ReadFile(o.FS, s.file)
	if errors.Is(err, fs.ErrNotExist) {
		data, err = encode(o.Dir, nil) // no file says the same as one without sessions
	}
	if err == nil {
		s.last = sha256.Sum256(data)
	}
	s.Changed()
	go s.run()
	return s
}

// Changed notes that the file may not have the current sessions. It does not wait for the file.
func (s *Store) Changed() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// list returns all current sessions, by key; those of one key newest first.
func (s *Store) list() []state.Session {
	all := slices.DeleteFunc(s.opts.List(), func(e state.Session) bool { return checkID(e.ID) != nil })
	slices.SortFunc(all, func(a, b state.Session) int {
		return cmp.Or(strings.Compare(a.Key, b.Key), b.UpdatedAt.Compare(a.UpdatedAt),
			strings.Compare(a.Agent, b.Agent), strings.Compare(a.Account, b.Account))
	})
	return all
}

// Close writes what is not yet written and ends the store's goroutine. It returns
// the error of that last write. A second Close does nothing and returns the same.
func (s *Store) Close() error { return s.close() }

// maxBackoff bounds, in intervals, the time between two tries while writes fail.
const maxBackoff = 64

const share = 20 // the goroutine rests this many times as long as its last write took

// run writes the file an interval after a change, until Close. While writes
// fail it tries again, with growing pauses: the disk may be full for long.
func (s *Store) run() {
	defer close(s.done)
	wait := s.opts.Interval
	for {
		select {
		case <-s.wake:
		case <-s.stop:
			return
		}
		select {
		case <-time.After(wait):
		case <-s.stop:
			return
		}
		begun := time.Now()
		err := s.flush()
		if err == nil {
			wait = min(max(s.opts.Interval, share*time.Since(begun)), maxBackoff*s.opts.Interval)
			continue
		}
		wait = min(2*wait, maxBackoff*s.opts.Interval)
		if s.opts.OnError != nil {
			s.opts.OnError(err)
		}
		s.Changed() // to try again
	}
}

// flush writes the file if it says something else. Only one goroutine calls it at a
// time: the store's own, and after its end Close.
func (s *Store) flush() error {
	if s.opts.Gone != nil && s.opts.Gone() {
		return nil
	}
	data, err := encode(s.opts.Dir, s.list())
	if sum := sha256.Sum256(data); err == nil && sum != s.last {
		if err = s.clearPlace(); err == nil {
			err = durable.WriteFile(s.opts.FS, s.file, data)
		}
		if err == nil {
			s.last = sum
		}
	}
	if err != nil {
		return fmt.Errorf("write sessions.json: %w", err)
	}
	return nil
}

// clearPlace renames what stands in the file's place and is no regular file: a directory
// cannot be replaced, and what a link leads to is not ours.
func (s *Store) clearPlace() error {
	fi, err := s.opts.FS.Stat(s.file)
	if err != nil || fi.Mode().IsRegular() {
		return nil // if the place cannot be looked at, the write returns why
	}
	aside := durable.FreeName(s.opts.FS, s.file+".bad")
	if err = s.opts.FS.Rename(s.file, aside); err == nil && s.opts.OnAside != nil {
		s.opts.OnAside(filepath.Base(aside))
	}
	return err
}

// fileEntry is an entry as it stands in sessions.json:
//
//	{
//	"web":{"sessionId":"…","updatedAt":"…","transcriptPath":"…","agent":"codex","codexSessionId":"…"}
//	}
//
// A key that was used with several agents or accounts has its newest session here and the rest, newest first,
// in "others". The file is for other programs: stint never reads it back.
type fileEntry struct {
	SessionID      string      `json:"sessionId"`
	UpdatedAt      time.Time   `json:"updatedAt"`
	TranscriptPath string      `json:"transcriptPath"`
	Agent          string      `json:"agent,omitempty"`
	Account        string      `json:"account,omitempty"`
	Codex          string      `json:"codexSessionId,omitempty"`
	Claude         string      `json:"claudeSessionId,omitempty"`
	Gemini         string      `json:"geminiSessionId,omitempty"`
	Demo           string      `json:"demoSessionId,omitempty"`
	Native         string      `json:"agentSessionId,omitempty"` // of any other agent
	Others         []fileEntry `json:"others,omitempty"`
}

// native returns the field that holds the native id of the entry's agent.
func (f *fileEntry) native() *string {
	own := map[string]*string{"codex": &f.Codex, "claude": &f.Claude, "gemini": &f.Gemini, "demo": &f.Demo}
	return cmp.Or(own[f.Agent], &f.Native)
}

// encode returns the bytes of sessions.json, one key a line. Entries are in the order of Store.list.
func encode(dir string, entries []state.Session) ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	sep := "\n"
	for i := 0; i < len(entries); {
		key := entries[i].Key
		var forms []fileEntry
		for ; i < len(entries) && entries[i].Key == key; i++ {
			e := &entries[i]
			f := fileEntry{
				SessionID:      e.ID,
				UpdatedAt:      e.UpdatedAt,
				TranscriptPath: TranscriptPath(dir, e.ID),
				Agent:          e.Agent,
				Account:        e.Account,
			}
			*f.native() = e.Native
			forms = append(forms, f)
		}
		forms[0].Others = forms[1:]
		k, _ := json.Marshal(key) // a string always can be
		v, err := json.Marshal(&forms[0])
		if err != nil {
			return nil, fmt.Errorf("session key %q: %w", key, err)
		}
		fmt.Fprintf(&b, "%s%s:%s", sep, k, v)
		sep = ",\n"
	}
	b.WriteString("\n}\n")
	return b.Bytes(), nil
}
