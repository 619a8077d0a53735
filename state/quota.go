package state

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Window is how much of a provider's quota was used over a time, as a CLI told it.
type Window struct {
	Name     string    `json:"name" doc:"As the CLI calls it" example:"five_hour"`
	Used     float64   `json:"used" doc:"Percentage that was used" example:"35.5"`
	Minutes  int       `json:"minutes,omitempty" doc:"Length of the window; left out: unknown" example:"300"`
	ResetsAt time.Time `json:"resetsAt" doc:"When the next window begins" example:"2026-11-21T03:15:09.482Z"`
	At       time.Time `json:"at" doc:"When the CLI told it" example:"2026-11-21T02:15:09.482Z"`
}

// maxWindow is the longest window that anybody has, and more, in minutes.
const maxWindow = 400 * 24 * 60

// Told returns how much of it is used, and how long ago that was told.
func (w *Window) Told(now time.Time) string {
	return fmt.Sprintf("%.4g%% of %s is used, as told %s ago", w.Used, w.Name, now.Sub(w.At).Round(time.Second))
}

// Lapsed reports whether the window is over: of the present one nothing is known.
func (w *Window) Lapsed(now time.Time) bool { return !w.ResetsAt.After(now) }

// SpareFrom returns from when on more of the window's quota is left, beside a reserve in percent, than of
// its time, by five points: then it would lapse. Zero if that is so now, or if its length is unknown.
func (w *Window) SpareFrom(now time.Time, reserve float64) time.Time {
	const margin = 5
	if w.Lapsed(now) || w.Minutes == 0 {
		return time.Time{}
	}
	share := min(max(100-w.Used-reserve-margin, 0), 100) / 100
	at := w.ResetsAt.Add(-time.Duration(share * float64(w.Minutes) * float64(time.Minute)))
	if at.Before(now) {
		return time.Time{}
	}
	return at
}

// MergeQuota returns the windows of before with those that were told at no earlier time in their places.
// It drops what [ParseQuota] would not read: a CLI may tell anything.
func MergeQuota(before, later []Window) []Window {
	all := slices.Clone(before)
	for _, w := range later {
		i := slices.IndexFunc(all, func(old Window) bool { return old.Name == w.Name })
		if _, err := ParseQuota(FormatQuota([]Window{w})); err != nil || i >= 0 && w.At.Before(all[i].At) {
			continue
		}
		if i >= 0 {
			all[i] = w
		} else {
			all = append(all, w)
		}
	}
	return all
}

// FormatQuota returns windows as they stand in the ledger: one on each line.
func FormatQuota(list []Window) string {
	var lines []string
	for _, w := range list {
		lines = append(lines, FormatWords("window", w.Name, "used", strconv.FormatFloat(w.Used, 'g', 4, 64), "minutes", OrNone(w.Minutes),
			"resetsAt", FormatTime(w.ResetsAt), "at", FormatTime(w.At)))
	}
	return strings.Join(lines, "\n")
}

// ParseQuota is the inverse of FormatQuota.
func ParseQuota(text string) ([]Window, error) {
	return ParseLines("window of a quota", text, func(m map[string]string) (Window, error) {
		w, errs := Window{Name: m["window"]}, [4]error{}
		w.Used, errs[0] = strconv.ParseFloat(m["used"], 64)
		w.ResetsAt, errs[1] = ParseTime(m["resetsAt"])
		w.At, errs[2] = ParseTime(m["at"])
		if m["minutes"] != "" {
			w.Minutes, errs[3] = strconv.Atoi(m["minutes"])
		}
		if w.Name == "" || !(w.Used >= 0 && w.Used <= 1e6) || w.Minutes < 0 || w.Minutes > maxWindow {
			return w, errors.New("a name is missing, or a number is out of range")
		}
		return w, cmp.Or(errs[:]...)
	})
}
