package postgrestest

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// Main runs the tests of a package: none reads what this machine's user has set up for
// PostgreSQL, and more of them run at once than there are processors, because they mostly
// wait.
func Main(m *testing.M) {
	for _, name := range []string{
		"PGHOST", "PGPORT", "PGDATABASE", "PGUSER", "PGPASSWORD", "PGPASSFILE", "PGSERVICE", "PGSERVICEFILE", "PGSSLMODE",
		"PGSSLROOTCERT", "PGSSLCERT", "PGSSLKEY", "PGCONNECT_TIMEOUT", "PGAPPNAME", "PGOPTIONS", "PGTARGETSESSIONATTRS",
	} {
		if err := os.Unsetenv(name); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	_ = flag.Set("test.parallel", "6") // it is there; -parallel still counts
	goleak.VerifyTestMain(m)
}
