package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"stint/coordinator"
)

const (
	defaultPort    = 5432
	connectTimeout = 5 * time.Second // where a URL names none
	oldest         = 13              // the oldest PostgreSQL that can be used
)

// parseURL gives the configuration of a pool from a URL or a libpq keyword/value string.
// As with psql, PG* variables, the service file and ~/.pgpass say what it leaves out. The
// errors are *coordinator.Error and have no part of a password.
//
// Who says nothing of TLS gets it, with the server's certificate and name verified,
// unless the server is on this machine. An environment that says sslmode=prefer, which
// pgx takes for granted, cannot be told from one that says nothing; a URL can.
func parseURL(text string) (*pgxpool.Config, error) {
	c, err := readConnString(text)
	if err != nil {
		return nil, err
	}
	cfg, err := c.config()
	if err != nil {
		return nil, err
	}
	if !c.complete(cfg) {
		// Read again and not changed: pgx looks up the password and makes the TLS
		// configuration by what it was given.
		if cfg, err = c.config(); err != nil {
			return nil, err
		}
	}
	cfg.MaxConnIdleTime = 5 * time.Minute
	cfg.HealthCheckPeriod = time.Minute
	cfg.PingTimeout = connectTimeout
	params := cfg.ConnConfig.RuntimeParams
	params["client_encoding"] = "UTF8"
	if params["application_name"] == "" {
		params["application_name"] = "stint"
	}
	return cfg, nil
}

// complete adds our defaults for what neither the URL nor anything else has said, and
// reports whether there was nothing to add.
func (c *connString) complete(cfg *pgxpool.Config) bool {
	missing := map[string]string{}
	if cfg.ConnConfig.Database == "" {
		missing["dbname"] = DefaultDatabase
	}
	if cfg.ConnConfig.ConnectTimeout == 0 {
		missing["connect_timeout"] = strconv.Itoa(int(connectTimeout / time.Second))
	}
	if c.settings["sslmode"] == "" && isUnverified(&cfg.ConnConfig.Config) {
		missing["sslmode"] = "verify-full"
	}
	maps.Copy(c.settings, missing)
	return len(missing) == 0
}

// isUnverified reports whether pgx would take any certificate of a server elsewhere, or
// none, as it does where nothing is said.
func isUnverified(c *pgconn.Config) bool {
	hosts := append([]*pgconn.FallbackConfig{{Host: c.Host, TLSConfig: c.TLSConfig}}, c.Fallbacks...)
	for i, h := range hosts {
		if isHere(h.Host) || h.TLSConfig == nil || !h.TLSConfig.InsecureSkipVerify || h.TLSConfig.VerifyPeerCertificate != nil {
			continue
		}
		plainNext := i+1 < len(hosts) && hosts[i+1].Host == h.Host && hosts[i+1].TLSConfig == nil
		if plainNext || c.SSLNegotiation == "direct" {
			return true
		}
	}
	return false
}

// isHere reports whether a host is a socket's directory or a loopback address.
func isHere(host string) bool {
	if strings.HasPrefix(host, "/") || strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

// config has pgx read the settings. What is wrong with them then stands in the
// environment or in a file, as they have been checked.
func (c *connString) config() (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig(c.keywords())
	if err != nil {
		return nil, badSurroundings(err)
	}
	return cfg, nil
}

// badSurroundings gives a sentence for an error of pgx about what it read beside a URL.
// Nothing of its text is shown.
func badSurroundings(err error) error {
	cause := err
	if inner := errors.Unwrap(err); inner != nil {
		cause = inner
	}
	var file *fs.PathError
	says := func(words string) bool { return strings.Contains(cause.Error(), words) }
	switch {
	case errors.As(err, &file):
		return badURL("look at sslrootcert, sslcert and sslkey, at PGSSLROOTCERT, PGSSLCERT and PGSSLKEY, and in ~/.postgresql",
			"a file with certificates or keys for PostgreSQL cannot be read: %v", file.Err)
	case says("failed to read service file"):
		return badURL("look at PGSERVICEFILE and ~/.pg_service.conf", "the service file that is to name the PostgreSQL server cannot be read")
	case says("unable to find service"):
		return badURL("look at PGSERVICE, and in ~/.pg_service.conf", "the service file has no service of the name that is asked for")
	case says("unable to add CA"):
		return badURL("sslrootcert names a file in PEM form", "the file of sslrootcert has no certificate in it")
	case says("sslmode is invalid"):
		return badURL("write one of "+strings.Join(choices["sslmode"], ", "), "PGSSLMODE, or sslmode in the service file, has a value that it cannot have")
	case says("sslkey"), says("sslpassword"), says("decrypt key"), says("load cert"), says("sslcert"):
		return badURL("look at sslcert, sslkey and sslpassword", "the client's certificate for PostgreSQL cannot be used with its key")
	default:
		return badURL("look at the PG* variables of the environment and at ~/.pg_service.conf",
			"what the environment or the service file says of the PostgreSQL server is not valid")
	}
}

// config asks for the URL, and gives the configuration of a pool for it.
func (o *Options) config() (*pgxpool.Config, target, error) {
	text, err := o.URL()
	if err != nil {
		return nil, target{}, explain(err, target{})
	}
	cfg, err := parseURL(text)
	if err != nil {
		return nil, target{}, err
	}
	if o.PoolSize > 0 {
		cfg.MaxConns = int32(min(o.PoolSize, 1000))
	}
	return cfg, targetOf(cfg), nil
}

// connect makes a pool of connections to the database, and looks whether it can hold a
// copy: that it answers in time, is new enough and has Unicode. The caller closes it. The
// error is of [explain]; the target is there with it as soon as the URL could be read.
func (o *Options) connect(ctx context.Context) (*database, target, error) {
	cfg, t, err := o.config()
	if err != nil {
		return nil, t, err
	}
	db, err := newDatabase(ctx, cfg)
	if err != nil {
		return nil, t, explain(err, t)
	}
	limit := cfg.ConnConfig.ConnectTimeout * time.Duration(hostCount(&cfg.ConnConfig.Config))
	if err := checkServer(ctx, db.Pool, t, limit); err != nil {
		db.Close()
		return nil, t, err
	}
	return db, t, nil
}

// hostCount gives the number of servers that are tried, one after the other.
func hostCount(c *pgconn.Config) int {
	seen := map[string]bool{net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port))): true}
	for _, f := range c.Fallbacks {
		seen[net.JoinHostPort(f.Host, strconv.Itoa(int(f.Port)))] = true
	}
	return len(seen)
}

// checkServer asks a server for what a copy needs.
func checkServer(ctx context.Context, pool *pgxpool.Pool, t target, limit time.Duration) error {
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var encoding, version string
	err := pool.QueryRow(within, `SELECT current_setting('server_encoding'), current_setting('server_version_num')`).Scan(&encoding, &version)
	if err != nil && ctx.Err() == nil && isTimeout(err) {
		return noAnswer(t, limit)
	}
	if err != nil {
		return explain(err, t)
	}
	if encoding != "UTF8" {
		return &coordinator.Error{
			Code:    coordinator.CodeInvalid,
			Message: fmt.Sprintf("%v has the encoding %s, and a copy needs UTF8", t, oneLine(encoding)),
			Hint:    "createdb -T template0 -E UTF8 " + shellName(t.database) + ", once the present one is out of the way",
		}
	}
	if n, err := strconv.Atoi(version); err != nil || n < oldest*10000 {
		return &coordinator.Error{
			Code:    coordinator.CodeInvalid,
			Message: fmt.Sprintf("%v is PostgreSQL %d, and a copy needs %d or newer", t, n/10000, oldest),
			Hint:    "name a newer server in the URL",
		}
	}
	return nil
}

// clockSkew gives how much the database's clock is ahead of ours: the middle of the
// round trip is taken as the moment at which it was read. The error is pgx's.
func clockSkew(ctx context.Context, pool *pgxpool.Pool, now func() time.Time) (time.Duration, error) {
	conn, err := pool.Acquire(ctx) // first, as connecting takes time
	if err != nil {
		return 0, err
	}
	defer conn.Release()
	var there time.Time
	before := now()
	// The simple protocol asks in one round trip.
	if err := conn.QueryRow(ctx, `SELECT clock_timestamp()`, pgx.QueryExecModeSimpleProtocol).Scan(&there); err != nil {
		return 0, err
	}
	return there.Sub(before.Add(now().Sub(before) / 2)), nil
}

// maxSkew is how far two clocks may be apart before it is worth a word.
const maxSkew = 5 * time.Second

// skewWarning gives the sentence for clocks that differ, and "" if they do not by much.
func skewWarning(d time.Duration, t target) string {
	if d.Abs() < maxSkew {
		return ""
	}
	direction := "ahead of"
	if d < 0 {
		direction = "behind"
	}
	return fmt.Sprintf("the clock of %v is %v %s this machine's: the times in the copy are those of this machine",
		t, d.Abs().Round(time.Second), direction)
}
