package postgres

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain has no test read what this machine's user has set up for PostgreSQL.
func TestMain(m *testing.M) {
	for _, name := range []string{
		"PGHOST", "PGPORT", "PGDATABASE", "PGUSER", "PGPASSWORD", "PGPASSFILE", "PGSERVICE", "PGSERVICEFILE", "PGSSLMODE",
		"PGSSLROOTCERT", "PGSSLCERT", "PGSSLKEY", "PGCONNECT_TIMEOUT", "PGAPPNAME", "PGOPTIONS", "PGTARGETSESSIONATTRS",
	} {
		if err := os.Unsetenv(name); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	goleak.VerifyTestMain(m)
}
