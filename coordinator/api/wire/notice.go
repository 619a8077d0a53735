package wire

import (
	"net/http"
	"strconv"
)

// A Notice is what every answer of a master says in its header about the master, so that a command need not ask for it.
type Notice struct {
	Findings int    // in the ledger
	Paused   bool   // dispatch is
	PauseWhy string // the reason that was given, or its beginning
	Shortage string // what the machine lacks, for which tasks wait; "": nothing
	Seq      uint64 // number of the newest record, from which events can be followed
	Config   string // what the master was started with: digest of the configuration file, and behind blanks settings from elsewhere; "": it does not say
}

const (
	SeqHeader      = "Stint-Seq"
	FindingsHeader = "Stint-Findings"
	PausedHeader   = "Stint-Paused"
	PauseWhyHeader = "Stint-Pause-Why" // as a Go string, because a person may have written it
	shortageHeader = "Stint-Shortage"  // as a Go string, because it names a directory
	configHeader   = "Stint-Config"
)

// maxWhy bounds a text in a header, in bytes.
const maxWhy = 1 << 10

// Write sets the headers of n.
func (n Notice) Write(h http.Header) {
	h.Set(SeqHeader, strconv.FormatUint(n.Seq, 10))
	h.Set(FindingsHeader, strconv.Itoa(n.Findings))
	h.Set(PausedHeader, strconv.FormatBool(n.Paused))
	if n.Config != "" {
		h.Set(configHeader, n.Config)
	}
	for name, text := range map[string]string{PauseWhyHeader: n.PauseWhy, shortageHeader: n.Shortage} {
		if text != "" {
			h.Set(name, strconv.QuoteToASCII(text[:min(len(text), maxWhy)]))
		}
	}
}

// ReadNotice returns the notice of an answer; nil if the master has written none.
func ReadNotice(h http.Header) *Notice {
	findings, err := strconv.Atoi(h.Get(FindingsHeader))
	if err != nil {
		return nil
	}
	why, _ := strconv.Unquote(h.Get(PauseWhyHeader))      // "" if there is none
	short, _ := strconv.Unquote(h.Get(shortageHeader))    // "" if there is none
	seq, _ := strconv.ParseUint(h.Get(SeqHeader), 10, 64) // 0 from an older master
	return &Notice{Findings: findings, Paused: h.Get(PausedHeader) == "true", PauseWhy: why, Shortage: short, Seq: seq, Config: h.Get(configHeader)}
}
