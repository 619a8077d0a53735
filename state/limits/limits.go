// Package limits reads and writes the bounds that people set for tasks and accounts: how much may be spent
// ([Budget]), in which hours work may start ([Hours]), and which share of a quota is kept for the user
// ([ParsePercent]). Each has one text for flags, the configuration and the ledger, and its zero value is no bound.
// The package knows neither tasks nor accounts.
package limits

import (
	"fmt"
	"strconv"
	"strings"
)

// ParsePercent reads a percentage from 0 to 100, such as 20%; "" is 0.
func ParsePercent(s string) (float64, error) {
	text, ok := strings.CutSuffix(s, "%")
	if s == "" {
		return 0, nil
	}
	v, err := strconv.ParseFloat(text, 64)
	if !ok || err != nil || !(v >= 0 && v <= 100) {
		return 0, fmt.Errorf("%q is not within 0%% and 100%%; write for example 20%%", s)
	}
	return v, nil
}
