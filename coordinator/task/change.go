package task

import (
	"bytes"
	"encoding/json"
	"sync"

	"stint/state"
)

// A Change tells a subscriber that a record of a task was applied. Subscribers
// get them in the order of the ledger, without gaps. All of them share one: it is
// only to be read.
type Change struct {
	Seq  uint64     `json:"seq" doc:"Number of the record" example:"1042"`
	Task state.Task `json:"task,omitzero" doc:"The task after it. Of a task that has ended it has only the fields by which lists are filtered"`
	// Resync says that tasks may have come to lists or gone from them, or changed,
	// without a record of their own, or with one that was missed: who follows must list
	// anew. There is no Task then.
	Resync bool `json:"resync,omitempty" doc:"It cannot be told what has changed: list anew. There is no task then" example:"false"`

	line func() ([]byte, error) // JSON, made once; nil: made each time
}

// Shared returns a copy of the change for several readers: its JSON is made once.
func (c Change) Shared() *Change {
	c.line = sync.OnceValues(c.encode)
	return &c
}

// Line returns the change as JSON, in one line with its end. It is made once for all
// subscribers, who must not change it.
func (c *Change) Line() ([]byte, error) {
	if c.line != nil {
		return c.line()
	}
	return c.encode()
}

func (c *Change) encode() ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	err := enc.Encode(c)
	return buf.Bytes(), err
}
