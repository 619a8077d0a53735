package postgres

import (
	"testing"

	"stint/coordinator/postgres/postgrestest"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }
