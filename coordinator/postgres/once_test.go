package postgres

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"stint/coordinator/postgres/postgrestest"
	"stint/coordinator/task"
)

// TestMigrateForbidden: a role that may not make tables changes nothing, and is told what it lacks.
func TestMigrateForbidden(t *testing.T) {
	t.Parallel()
	url := postgrestest.Shared(t).Database(t)
	admin, err := pgx.Connect(t.Context(), url)
	must(t, err)
	defer func() { _ = admin.Close(context.Background()) }()
	do(t, admin, "REVOKE CREATE ON SCHEMA public FROM PUBLIC; CREATE ROLE migrate_reader LOGIN")
	defer do(t, admin, "DROP ROLE migrate_reader")
	reader := Options{URL: func() (string, error) { return strings.Replace(url, "postgres@", "migrate_reader@", 1), nil }}
	_, _, err = Migrate(t.Context(), reader)
	var e *task.Error
	if !errors.As(err, &e) || !strings.Contains(e.Hint, "GRANT it to \"migrate_reader\"") {
		t.Errorf("%v", err)
	}
	var tables int
	must(t, admin.QueryRow(t.Context(), "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace").Scan(&tables))
	if tables != 0 {
		t.Errorf("it has made %d tables and indexes", tables)
	}
}
