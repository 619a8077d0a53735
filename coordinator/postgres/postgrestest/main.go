// Package postgrestest starts for tests a real PostgreSQL of their own, and the means to let it go wrong: it
// is killed, paused, its disk fills up. Only tests import it.
//
// A server lies in a temporary directory and listens at a Unix socket there. A small process waits for the test binary to end,
// however it does, and then kills the server and removes its files: nothing is left behind by a panic or a timeout either.
package postgrestest

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// Main runs the tests of a package: none reads what this machine's user has set up for PostgreSQL, and more
// of them run at once than there are processors, because they mostly wait.
func Main(m *testing.M) {
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "PG") {
			_ = os.Unsetenv(name) // it is a name
		}
	}
	_ = flag.Set("test.parallel", "6") // it is there; -parallel still counts
	goleak.VerifyTestMain(m)
}

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
