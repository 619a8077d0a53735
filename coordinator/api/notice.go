package api

import (
	"net/http"
	"strconv"
)

// A Notice is what every answer of a master says in its header about the master,
// so that a command need not ask for it.
type Notice struct {
	Findings int    // in the ledger
	Paused   bool   // dispatch is
	PauseWhy string // the reason that was given, or its beginning
	Shortage string // what the machine lacks, for which tasks wait; "": nothing
	Seq      uint64 // number of the newest record, from which events can be followed
	Config   string // digest of the configuration file that the master was started with; "": it does not say
}

const (
	seqHeader      = "Stint-Seq"
	findingsHeader = "Stint-Findings"
	pausedHeader   = "Stint-Paused"
	pauseWhyHeader = "Stint-Pause-Why" // as a Go string, because a person may have written it
	shortageHeader = "Stint-Shortage"  // likewise: it names a directory
	configHeader   = "Stint-Config"
)

// maxWhy bounds a text in a header, in bytes.
const maxWhy = 1 << 10

func (s *Server) notice() Notice {
	n := Notice{Findings: len(s.master.Findings()), Seq: s.master.Seq(), Config: s.opts.Config}
	n.Paused, n.PauseWhy = s.master.Paused()
	if short := s.master.Shortage(); short != nil {
		n.Shortage = short.What
	}
	return n
}

func (n Notice) write(h http.Header) {
	h.Set(seqHeader, strconv.FormatUint(n.Seq, 10))
	h.Set(findingsHeader, strconv.Itoa(n.Findings))
	h.Set(pausedHeader, strconv.FormatBool(n.Paused))
	if n.Config != "" {
		h.Set(configHeader, n.Config)
	}
	for name, text := range map[string]string{pauseWhyHeader: n.PauseWhy, shortageHeader: n.Shortage} {
		if text != "" {
			h.Set(name, strconv.QuoteToASCII(text[:min(len(text), maxWhy)]))
		}
	}
}

// readNotice gives nil for the answer of a master that writes none.
func readNotice(h http.Header) *Notice {
	findings, err := strconv.Atoi(h.Get(findingsHeader))
	if err != nil {
		return nil
	}
	why, _ := strconv.Unquote(h.Get(pauseWhyHeader))      // "" if there is none
	short, _ := strconv.Unquote(h.Get(shortageHeader))    // likewise
	seq, _ := strconv.ParseUint(h.Get(seqHeader), 10, 64) // 0 from an older master
	return &Notice{Findings: findings, Paused: h.Get(pausedHeader) == "true", PauseWhy: why, Shortage: short, Seq: seq, Config: h.Get(configHeader)}
}

// Notice gives what the last answer said about the master; nil if it said nothing,
// or is too old to count, as after a Wait.
func (c *Client) Notice() *Notice { return c.notice.Load() }
