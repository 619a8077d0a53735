package postgrestest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// A canary is a password that no output may have; CanaryMark is in all its spellings.
const (
	Canary        = "c4n4ry:/?#[]@!p%w d"
	CanaryEncoded = "c4n4ry%3A%2F%3F%23%5B%5D%40%21p%25w%20d"
	CanaryMark    = "c4n4ry"
)

// Everything returns all that a careless caller could print of an error.
func Everything(err error) string {
	var b strings.Builder
	for ; err != nil; err = errors.Unwrap(err) {
		fmt.Fprintf(&b, "%v\n%+v\n%#v\n%s\n%q\n", err, err, err, err.Error(), err.Error())
	}
	return b.String()
}

// Home sets an empty home directory for the test.
func Home(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	return dir
}
