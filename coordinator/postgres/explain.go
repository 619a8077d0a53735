package postgres

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"stint/coordinator"
)

// A fault is what is said of a kind of errors. In its texts {db} stands for the
// database and where it is, {address} for the latter, {name} for the database's name as
// a word of the shell, {role} for the user, {grantee} for it as a word of SQL, {said}
// for what the server or the system says, {sqlstate} for its code.
type fault struct {
	code          coordinator.Code
	message, hint string
}

// explain gives a sentence for people in place of any error of pgx: what failed, why,
// and what to do. nil stays nil, an error that has its sentence already stays as it is,
// and of a call that was given up context.Canceled is left. Nothing of the error is
// wrapped, as errors of pgx hold configurations and URLs.
func explain(err error, t target) error {
	var own *coordinator.Error
	var server *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &own):
		return own
	case errors.As(err, &server):
		return serverFault(err, server, t).of(t, server.Message, server.Code)
	case errors.Is(err, context.Canceled):
		return context.Canceled
	default:
		return transportFault(err).of(t, text(err), "")
	}
}

// of gives the error of a fault.
func (f fault) of(t target, said, sqlstate string) error {
	address, role := oneLine(t.address()), oneLine(t.user)
	if t.host == "" {
		address = "the server"
	}
	words := strings.NewReplacer(
		"{db}", t.String(), "{address}", address, "{host}", oneLine(t.host), "{name}", shellName(t.database), "{role}", role,
		"{grantee}", oneLine(pgx.Identifier{t.user}.Sanitize()), "{said}", t.secrets.scrub(said), "{sqlstate}", oneLine(sqlstate))
	return &coordinator.Error{Code: f.code, Message: words.Replace(f.message), Hint: words.Replace(f.hint)}
}

// plainName fits names that need no quotes, in SQL or in a shell.
var plainName = pattern(`^[a-z_][a-z0-9_]*$`)

// shellName gives a name as a word of the shell.
func shellName(name string) string {
	if plainName().MatchString(name) {
		return name
	}
	return "'" + strings.ReplaceAll(oneLine(name), "'", `'\''`) + "'"
}

// serverFaults are the faults by SQLSTATE.
var serverFaults = map[string]fault{
	"3D000": {coordinator.CodeInvalid, "there is no database {db}", "createdb {name}"},
	"28000": {coordinator.CodeUnauthorized, "{db} does not let role {role} in: {said}", "look at the user in the database URL, and at pg_hba.conf on the server"},
	"28P01": {
		coordinator.CodeUnauthorized, "{db} does not accept the password of role {role}",
		"look at the password in url_file, in STINT_POSTGRES_URL, or in ~/.pgpass",
	},
	"42501": {coordinator.CodeForbidden, "role {role} may not do that in {db}: {said}", "GRANT what is missing to {grantee}"},
	"25006": {coordinator.CodeUnavailable, "{db} is read-only, such as a standby is", "name the primary in the database URL, or all servers and target_session_attrs=read-write"},
	"53100": {coordinator.CodeFull, "the disk of the server of {db} is full", "make room there; the copy goes on by itself then"},
	"53200": {coordinator.CodeUnavailable, "the server of {db} is out of memory", "look at the server; the copy goes on by itself"},
	"53300": {coordinator.CodeTooMany, "{db} takes no more connections", "raise max_connections there, or set a smaller pool_size of [postgres] in config.toml"},
	"57P01": {coordinator.CodeUnavailable, "the server of {db} is shutting down", "start it again; the copy goes on by itself then"},
	"57P02": {coordinator.CodeUnavailable, "the server of {db} has crashed and starts anew", "look at its log; the copy goes on by itself"},
	"57P03": {coordinator.CodeUnavailable, "the server of {db} takes no connections at the moment: {said}", "wait; the copy goes on by itself"},
	"57P04": {coordinator.CodeUnavailable, "{db} has been dropped", "createdb {name}"},
	"57014": {coordinator.CodeUnavailable, "{db} has given up a statement: {said}", "look at statement_timeout there, and at what it has to do besides"},
	"55P03": {coordinator.CodeBusy, "someone else holds a lock in {db}, and it was not free in time", "look at pg_stat_activity there, and try again"},
	"40P01": {coordinator.CodeBusy, "{db} has given up a statement that stood in the way of another: {said}", "try again"},
	"40001": {coordinator.CodeBusy, "{db} has given up a statement that stood in the way of another: {said}", "try again"},
	"42P01": {coordinator.CodeConflict, "a table of the copy is missing from {db}: {said}", beginAnew},
	"42703": {coordinator.CodeConflict, "a column of the copy is missing from {db}: {said}", beginAnew},
	"3F000": {coordinator.CodeConflict, "the schema for the copy is missing from {db}: {said}", "look at search_path, then stint sync migrate"},
	"42704": {coordinator.CodeInvalid, "{db} does not know something that it was asked for: {said}", "look at the settings in the database URL"},

	"no role":     {coordinator.CodeUnauthorized, "there is no role {role} at {address}", "createuser {role}, or name another user in the database URL"},
	"no login":    {coordinator.CodeUnauthorized, "role {role} at {address} may not log in", "ALTER ROLE {grantee} LOGIN"},
	"no password": {coordinator.CodeUnauthorized, "{db} wants a password for role {role}, and there is none", "put it into url_file, STINT_POSTGRES_URL or ~/.pgpass"},
	"":            {coordinator.CodeUnavailable, "{db} has refused: {said} (SQLSTATE {sqlstate})", "look at the server's log"},
}

// serverFault says what kind of error a server has given.
func serverFault(err error, server *pgconn.PgError, t target) fault {
	kind := server.Code
	var connect *pgconn.ConnectError
	switch {
	case kind == "42501":
		return permissionFault(server, t)
	case kind == "28000" && strings.Contains(server.Message, "does not exist"):
		kind = "no role"
	case kind == "28000" && strings.Contains(server.Message, "not permitted to log in"):
		kind = "no login"
	case kind == "28P01" && errors.As(err, &connect) && connect.Config.Password == "":
		kind = "no password"
	}
	if f, ok := serverFaults[kind]; ok {
		return f
	}
	return serverFaults[""]
}

// denied and deniedTemporary fit what an English server says of a missing permission.
var (
	denied          = pattern(`^permission denied for (table|relation|view|sequence|schema|database) (\S+)$`)
	deniedTemporary = pattern(`^permission denied to create temporary tables`)
)

// permissionFault names what the permission is missing for, where the server says it. It
// names no schema but one that the server has named: that of the tables is wherever the
// role's search_path has it.
func permissionFault(server *pgconn.PgError, t target) fault {
	f := serverFaults["42501"]
	if deniedTemporary().MatchString(server.Message) {
		f.hint = "GRANT TEMPORARY ON DATABASE " + oneLine(pgx.Identifier{t.database}.Sanitize()) + " TO {grantee}"
		return f
	}
	found := denied().FindStringSubmatch(t.secrets.scrub(server.Message))
	if found == nil || !plainName().MatchString(found[2]) {
		return f
	}
	kind, name := found[1], found[2]
	f.message = "role {role} may not use the " + kind + " " + name + " of {db}"
	switch kind {
	case "schema":
		f.hint = "GRANT USAGE, CREATE ON SCHEMA " + name + " TO {grantee}"
	case "database":
		f.hint = "GRANT CONNECT, CREATE ON DATABASE " + name + " TO {grantee}"
	default:
		f.hint = "GRANT SELECT, INSERT, UPDATE, DELETE ON " + strings.Join(ourTables, ", ") + ", schema_migrations TO {grantee}"
	}
	return f
}

const hintDown = "look whether PostgreSQL runs there; the copy goes on by itself then"

var (
	refusedFault    = fault{coordinator.CodeUnavailable, "no PostgreSQL listens at {address}", hintDown}
	noSocketFault   = fault{coordinator.CodeUnavailable, "there is no socket of PostgreSQL at {address}", hintDown}
	forbiddenSocket = fault{coordinator.CodeForbidden, "the socket of PostgreSQL at {address} is closed to this user", "look at the permissions of its directory, and at unix_socket_permissions"}
	noRouteFault    = fault{coordinator.CodeUnavailable, "there is no way to {address}: {said}", "look at the network; the copy goes on by itself then"}
	noHostFault     = fault{coordinator.CodeUnavailable, "the name of the host {host} is not known", "look at the host in the database URL"}
	lookupFault     = fault{coordinator.CodeUnavailable, "the address of the host {host} could not be looked up", "look at the network and its name servers; the copy goes on by itself then"}
	timeoutFault    = fault{coordinator.CodeUnavailable, "{db} did not answer in time", "look at the server and the network; the copy goes on by itself then"}
	resetFault      = fault{coordinator.CodeUnavailable, "the connection to {db} was cut", "look at the server's log and the network; the copy goes on by itself"}
	standbyFault    = fault{coordinator.CodeUnavailable, "no server is what target_session_attrs asks for", "name the other servers in the database URL, or leave target_session_attrs out"}

	noTLSFault = fault{
		coordinator.CodeInvalid, "{address} does not offer TLS, which is wanted",
		"turn on ssl there, or add sslmode=disable to the database URL if the network between is trusted",
	}
	unknownCA = fault{
		coordinator.CodeInvalid, "nobody known here has signed the certificate of {address}",
		"add sslrootcert=FILE, with the certificate of who signed it, to the database URL; sslmode=require takes any certificate",
	}
	wrongHost = fault{
		coordinator.CodeInvalid, "the certificate of {address} is for another name",
		"name the server as its certificate does, or add sslmode=verify-ca to the database URL",
	}
	badCertificate = fault{
		coordinator.CodeInvalid, "the certificate of {address} is not valid: {said}",
		"renew it; with sslmode=require in the database URL any certificate is taken",
	}
	tlsFault   = fault{coordinator.CodeUnavailable, "TLS with {address} fails: {said}", "look at ssl on the server, and at sslmode in the database URL"}
	urlFault   = fault{coordinator.CodeInvalid, "the database URL cannot be read", "write one such as " + exampleURL}
	otherFault = fault{coordinator.CodeUnavailable, "{db} cannot be used: {said}", "look at the server's log"}
)

// transportFault says what kind of error came from elsewhere than a server.
func transportFault(err error) fault {
	var parse *pgconn.ParseConfigError
	var address *url.Error
	var dns *net.DNSError
	switch {
	case errors.As(err, &parse), errors.As(err, &address):
		return urlFault
	case errors.Is(err, pgconn.ErrReadOnlyConnection), errors.Is(err, pgconn.ErrReadWriteConnection),
		errors.Is(err, pgconn.ErrPrimaryConnection), errors.Is(err, pgconn.ErrStandbyConnection):
		return standbyFault
	case errors.As(err, &dns) && dns.IsNotFound:
		return noHostFault
	case errors.As(err, &dns):
		return lookupFault
	}
	if f, ok := certificateFault(err); ok {
		return f
	}
	return networkFault(err)
}

// certificateFault says what is wrong with TLS, if that it is.
func certificateFault(err error) (fault, bool) {
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var verify *tls.CertificateVerificationError
	var header tls.RecordHeaderError
	switch {
	case errors.As(err, &unknown):
		return unknownCA, true
	case errors.As(err, &host):
		return wrongHost, true
	case errors.As(err, &invalid), errors.As(err, &verify):
		return badCertificate, true
	case errors.As(err, &header):
		return tlsFault, true
	case strings.Contains(err.Error(), "server refused TLS connection"):
		return noTLSFault, true // pgx has no name for it
	}
	return fault{}, false
}

// networkFault says what is wrong with a connection.
func networkFault(err error) fault {
	switch {
	case isTimeout(err):
		return timeoutFault
	case errors.Is(err, syscall.ECONNREFUSED):
		return refusedFault
	case isDial(err) && errors.Is(err, fs.ErrNotExist):
		return noSocketFault
	case isDial(err) && errors.Is(err, fs.ErrPermission):
		return forbiddenSocket
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return noRouteFault
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed), errors.Is(err, pgconn.ErrConnClosed),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNABORTED):
		return resetFault
	case strings.Contains(err.Error(), "tls: "):
		return tlsFault
	default:
		return otherFault
	}
}

// isDial reports whether an error came of making a connection.
func isDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// isTimeout reports whether something has taken too long.
func isTimeout(err error) bool {
	var network net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network) && network.Timeout()
}

// noAnswer gives the error of a server that has been silent for that long.
func noAnswer(t target, limit time.Duration) error {
	f := timeoutFault
	f.message = fmt.Sprintf("{db} did not answer within %v", limit)
	return f.of(t, "", "")
}

// text gives what an error says, without what pgx puts before it: names that the
// sentence has already.
func text(err error) string {
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) {
		err = connect.Unwrap()
	}
	return err.Error()
}
