package postgres

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// knownKeys are the settings that a URL may have: those of libpq that pgx knows, those of
// pgx, and those of a session that make sense here. All others would be sent to the
// server, which ends the connection for a misspelt one.
var knownKeys = strings.Fields(`
	host port dbname user password passfile connect_timeout service servicefile
	sslmode sslkey sslcert sslcertmode sslrootcert sslnegotiation sslpassword sslsni
	krbspn krbsrvname target_session_attrs min_protocol_version max_protocol_version channel_binding require_auth
	statement_cache_capacity description_cache_capacity default_query_exec_mode
	application_name client_encoding options search_path role timezone datestyle intervalstyle
	statement_timeout lock_timeout idle_session_timeout idle_in_transaction_session_timeout transaction_timeout
	synchronous_commit client_min_messages work_mem
	tcp_keepalives_idle tcp_keepalives_interval tcp_keepalives_count tcp_user_timeout client_connection_check_interval`)

// replacedKeys are settings of others that have another name or place here.
var replacedKeys = map[string]string{
	"hostaddr":                  "give the address as host",
	"fallback_application_name": "write application_name",
	"schema":                    "write search_path",
	"currentSchema":             "write search_path",
	"pool_max_conns":            "set pool_size of [postgres] in config.toml",
	"connection_limit":          "set pool_size of [postgres] in config.toml",
}

// unusedKeys are settings of libpq, of pgx and of others that mean nothing here.
var unusedKeys = strings.Fields(`
	gssencmode gsslib gssdelegation keepalives keepalives_idle keepalives_interval keepalives_count
	sslcompression sslcrl sslcrldir sslkeylogfile ssl_min_protocol_version ssl_max_protocol_version
	load_balance_hosts requirepeer replication pgbouncer pool_timeout
	pool_min_conns pool_min_idle_conns pool_max_conn_lifetime pool_max_conn_idle_time
	pool_health_check_period pool_max_conn_lifetime_jitter pool_ping_timeout`)

// choices are the settings with a closed set of values.
var choices = map[string][]string{
	"sslmode":                 {"disable", "allow", "prefer", "require", "verify-ca", "verify-full"},
	"sslcertmode":             {"disable", "allow", "require"},
	"sslnegotiation":          {"postgres", "direct"},
	"sslsni":                  {"0", "1"},
	"target_session_attrs":    {"any", "read-write", "read-only", "primary", "standby", "prefer-standby"},
	"channel_binding":         {"disable", "prefer", "require"},
	"min_protocol_version":    {"3.0", "3.2", "latest"},
	"max_protocol_version":    {"3.0", "3.2", "latest"},
	"default_query_exec_mode": {"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"},
}

// numbers are the settings that are whole numbers from 0, with their greatest value.
var numbers = map[string]int{
	"connect_timeout": 3600, "statement_cache_capacity": 1 << 16, "description_cache_capacity": 1 << 16,
}

// knownKey gives libpq's keyword for a setting. An unknown name is no part of the error:
// it may be a piece of a password with a blank or an & in it.
func knownKey(key string, inURL bool) (string, error) {
	switch {
	case key == "database":
		return "dbname", nil
	case slices.Contains(knownKeys, key), inURL && key == "ssl":
		return key, nil
	case key == "TimeZone", key == "DateStyle", key == "IntervalStyle": // the server knows them so too
		return strings.ToLower(key), nil
	}
	hint, replaced := replacedKeys[key]
	if !replaced && slices.Contains(unusedKeys, key) {
		hint = "leave it out"
	}
	if hint != "" {
		return "", badURL(hint, "the setting %s in the database URL means nothing here", key)
	}
	return "", badURL("parameters of the server go into options, as in options=-c%20jit%3Doff",
		"the database URL has a setting whose name is not known")
}

// check looks at the settings one by one.
func (c *connString) check() error {
	for _, key := range slices.Sorted(maps.Keys(c.settings)) {
		value := c.settings[key]
		if isSecret(key) {
			continue
		}
		if !utf8.ValidString(value) || strings.ContainsFunc(value, unicode.IsControl) {
			return badURL("remove them", "the value of %s in the database URL has control characters or bytes that are no UTF-8", key)
		}
	}
	for _, check := range []func() error{c.checkHosts, c.checkPorts, c.checkNames, c.checkChoices, c.checkNumbers} {
		if err := check(); err != nil {
			return err
		}
	}
	return c.checkPairs()
}

// checkHosts refuses what is no name, no address and no directory: a URL put there by
// mistake would be shown with its password wherever the host is shown.
func (c *connString) checkHosts() error {
	for host := range strings.SplitSeq(c.settings["host"], ",") {
		if strings.HasPrefix(host, "/") && !strings.ContainsAny(host, "@?") {
			continue
		}
		if _, err := netip.ParseAddr(host); err == nil {
			continue
		}
		if strings.ContainsFunc(host, notInHostNames) {
			return badURL("write a name, an address, or the directory of a socket", "the host in the database URL has a character that host names cannot have")
		}
	}
	return nil
}

func notInHostNames(r rune) bool {
	return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '.' && r != '-' && r != '_'
}

// checkPorts wants one for all hosts, or as many as there are hosts.
func (c *connString) checkPorts() error {
	ports := strings.Split(c.settings["port"], ",")
	for _, port := range ports {
		if port == "" {
			continue
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return badURL("write : in a password as %3A, and an IPv6 address in [ ]", "the port in the database URL is no number from 1 to 65535")
		}
	}
	if hosts, there := c.settings["host"]; there && len(ports) > 1 && len(ports) != strings.Count(hosts, ",")+1 {
		return badURL("write one port for all, or one for each host", "the database URL has another number of ports than of hosts")
	}
	return nil
}

// checkNames refuses a whole URL where a name should be.
func (c *connString) checkNames() error {
	for _, key := range []string{"dbname", "user", "service"} {
		if strings.Contains(c.settings[key], "://") {
			return badURL("write the URL alone, such as "+exampleURL, "the value of %s in the database URL is a URL itself", key)
		}
	}
	if strings.Contains(c.settings["dbname"], "@") {
		return badURL("write the URL alone, such as "+exampleURL, "the name of the database in the database URL has an @ in it")
	}
	return nil
}

func (c *connString) checkChoices() error {
	for _, key := range slices.Sorted(maps.Keys(choices)) {
		values := choices[key]
		if value := c.settings[key]; value != "" && !slices.Contains(values, value) {
			return badURL("write one of "+strings.Join(values, ", "), "%s in the database URL has a value that it cannot have", key)
		}
		if c.settings[key] == "" {
			delete(c.settings, key) // an empty one says nothing
		}
	}
	return nil
}

func (c *connString) checkNumbers() error {
	for _, key := range slices.Sorted(maps.Keys(numbers)) {
		most := numbers[key]
		value, there := c.settings[key]
		if !there {
			continue
		}
		if n, err := strconv.Atoi(value); err != nil || n < 0 || n > most {
			return badURL("write it without a unit", "%s in the database URL is no whole number from 0 to %d", key, most)
		}
	}
	return nil
}

// checkPairs looks at settings that need each other.
func (c *connString) checkPairs() error {
	if (c.settings["sslcert"] == "") != (c.settings["sslkey"] == "") {
		return badURL("give sslcert and sslkey, or neither", "the database URL has one of sslcert and sslkey without the other")
	}
	return nil
}
