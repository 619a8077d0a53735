package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/rogpeppe/go-internal/testscript"

	"stint/coordinator/postgres/postgrestest"
)

// cmdPostgres: postgres VAR puts the URL of an empty database into a variable; its server
// is one that all scripts share. postgres -own VAR is one of a server that this script
// may treat as it likes: postgres kill, start, pause, resume.
func cmdPostgres(ts *testscript.TestScript, neg bool, args []string) {
	use := "postgres [-own] VAR | kill | start | pause | resume"
	need(ts, neg, args, 1, 2, use)
	s := stateOf(ts)
	switch own := s.postgres; {
	case len(args) == 2 && args[0] == "-own":
		s.postgres = postgrestest.Start(s.tests)
		ts.Setenv(args[1], s.postgres.Database(s.tests))
	case len(args) == 2:
		ts.Fatalf("usage: %s", use)
	case args[0] == "kill" && own != nil:
		own.Kill(s.tests)
	case args[0] == "start" && own != nil:
		own.Restart(s.tests)
	case args[0] == "pause" && own != nil:
		own.Pause(s.tests)
	case args[0] == "resume" && own != nil:
		own.Resume(s.tests)
	default:
		ts.Setenv(args[0], postgrestest.Shared(s.tests).Database(s.tests))
	}
}

// cmdSQL: sql [-wait REGEXP] QUERY [ARG...] asks the database $DB and prints the rows, with
// their columns between bars. With -wait it asks until what is printed has a match.
func cmdSQL(ts *testscript.TestScript, neg bool, args []string) {
	var form *regexp.Regexp
	if len(args) > 1 && args[0] == "-wait" {
		form, args = regexp.MustCompile("(?m)"+args[1]), args[2:]
	}
	need(ts, neg, args, 1, 10, "sql [-wait REGEXP] QUERY [ARG...]")
	var rows string
	var err error
	ask := func() bool {
		rows, err = askPostgres(ts.Getenv("DB"), args[0], args[1:])
		return form == nil || err == nil && form.MatchString(rows)
	}
	if !poll(scriptDeadline, ask) {
		ts.Fatalf("%s has no row that matches %s; the last answer was %v\n%s", args[0], form, err, rows)
	}
	ts.Check(err)
	_, err = fmt.Fprint(ts.Stdout(), rows)
	ts.Check(err)
}

// query returns the rows of an answer, a line each.
func askPostgres(url, sql string, args []string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), scriptDeadline)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close(ctx) }() // it was only asked
	given := []any{pgx.QueryExecModeSimpleProtocol}
	for _, arg := range args {
		given = append(given, arg)
	}
	rows, err := conn.Query(ctx, sql, given...)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	var b strings.Builder
	for rows.Next() {
		var cells []string
		for _, raw := range rows.RawValues() { // as text, in this mode
			cells = append(cells, string(raw))
		}
		b.WriteString(strings.Join(cells, "|") + "\n")
	}
	return b.String(), rows.Err()
}
