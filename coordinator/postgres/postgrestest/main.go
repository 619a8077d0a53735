// Package postgrestest starts for tests a real PostgreSQL of their own, and has the means to let it go wrong: it
// is killed or paused. Only tests import it.
//
// A server lies in a temporary directory and listens at a Unix socket there. A small process waits for the test binary to end,
// however it does, and then kills the server and removes its files: nothing is left behind by a panic or a timeout either.
package postgrestest

import (
	"flag"
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
