package postgres

import (
	"flag"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// TestMain: no test reads what this machine's user has set up for PostgreSQL, and more of them
// run at once than there are processors, because they mostly wait.
func TestMain(m *testing.M) {
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "PG") {
			_ = os.Unsetenv(name) // it is a name
		}
	}
	_ = flag.Set("test.parallel", "6") // it is there; -parallel still counts
	goleak.VerifyTestMain(m)
}
