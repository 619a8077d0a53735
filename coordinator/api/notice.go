package api

import (
	"net/http"
	"strconv"
)

// A Notice is what every answer of a master says in its header about the master,
// so that a command need not ask for it.
type Notice struct {
	Findings int  // in the ledger
	Paused   bool // dispatch is
}

const (
	findingsHeader = "Stint-Findings"
	pausedHeader   = "Stint-Paused"
)

func noticeOf(m Master) Notice { return Notice{Findings: len(m.Findings()), Paused: m.Paused()} }

func (n Notice) write(h http.Header) {
	h.Set(findingsHeader, strconv.Itoa(n.Findings))
	h.Set(pausedHeader, strconv.FormatBool(n.Paused))
}

// readNotice gives nil for the answer of a master that writes none.
func readNotice(h http.Header) *Notice {
	findings, err := strconv.Atoi(h.Get(findingsHeader))
	if err != nil {
		return nil
	}
	return &Notice{Findings: findings, Paused: h.Get(pausedHeader) == "true"}
}

// Notice gives what the last answer said about the master; nil if it said nothing,
// or is too old to count, as after a Wait.
func (c *Client) Notice() *Notice { return c.notice.Load() }
