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
	Seq      uint64 // number of the newest record, from which events can be followed
	Config   string // digest of the configuration file that the master was started with; "": it does not say
}

const (
	seqHeader      = "Stint-Seq"
	findingsHeader = "Stint-Findings"
	pausedHeader   = "Stint-Paused"
	pauseWhyHeader = "Stint-Pause-Why" // as a Go string, because a person may have written it
	configHeader   = "Stint-Config"
)

// maxWhy bounds the reason of a pause in a header, in bytes.
const maxWhy = 1 << 10

func (s *Server) notice() Notice {
	n := Notice{Findings: len(s.master.Findings()), Seq: s.master.Seq(), Config: s.opts.Config}
	n.Paused, n.PauseWhy = s.master.Paused()
	return n
}

func (n Notice) write(h http.Header) {
	h.Set(seqHeader, strconv.FormatUint(n.Seq, 10))
	h.Set(findingsHeader, strconv.Itoa(n.Findings))
	h.Set(pausedHeader, strconv.FormatBool(n.Paused))
	if n.Config != "" {
		h.Set(configHeader, n.Config)
	}
	if n.PauseWhy != "" {
		h.Set(pauseWhyHeader, strconv.QuoteToASCII(n.PauseWhy[:min(len(n.PauseWhy), maxWhy)]))
	}
}

// readNotice gives nil for the answer of a master that writes none.
func readNotice(h http.Header) *Notice {
	findings, err := strconv.Atoi(h.Get(findingsHeader))
	if err != nil {
		return nil
	}
	why, _ := strconv.Unquote(h.Get(pauseWhyHeader))      // "" if there is none
	seq, _ := strconv.ParseUint(h.Get(seqHeader), 10, 64) // 0 from an older master
	return &Notice{Findings: findings, Paused: h.Get(pausedHeader) == "true", PauseWhy: why, Seq: seq, Config: h.Get(configHeader)}
}

// Notice gives what the last answer said about the master; nil if it said nothing,
// or is too old to count, as after a Wait.
func (c *Client) Notice() *Notice { return c.notice.Load() }
