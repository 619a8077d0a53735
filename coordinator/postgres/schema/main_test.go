package schema

import (
	"testing"

	"stint/coordinator/postgres/testdata/postgrestest"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }
