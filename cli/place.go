package cli

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// inMemory is the --db of conversations that end with the program.
const inMemory = ":memory:"

// dbVariable is where the program looks for the place of the conversations if
// there is no --db. It is one of our own: DATABASE_URL often names the database of
// something else, in which nobody expects tables of ours.
const dbVariable = "FLUE_DB"

// listenVariable is another URL of the same database, for the one connection on which
// the process hears of what others do, which most poolers cannot pass on.
const listenVariable = "FLUE_DB_LISTEN"

// A place is where conversations are kept: in memory, in a file of SQLite, or in a
// schema of a PostgreSQL database.
type place struct {
	memory bool
	file   string

	url    string // it may hold a password: show the place, never this
	listen string // another URL, for listening; url if empty
	schema string // the default if empty
	conns  int    // at most; the default if 0
}

// shared reports whether other processes may have the place open.
func (p place) shared() bool { return p.url != "" }

// String names the place without a user or a password.
func (p place) String() string {
	switch {
	case p.memory:
		return inMemory
	case p.url == "":
		return p.file
	}
	name := "the PostgreSQL database"
	if u, err := url.Parse(p.url); err == nil {
		name = "postgres://" + u.Host + u.Path
	}
	if p.schema != "" {
		name += ", schema " + p.schema
	}
	return name
}

// URL parameters of our own. What is left is for the driver.
const (
	schemaParameter = "schema"
	connsParameter  = "pool_max_conns"
)

// parsePlace reads the value of --db or of the variable. Errors do not repeat it:
// it may hold a password.
func parsePlace(value string) (place, error) {
	scheme, _, isURL := strings.Cut(value, "://")
	switch {
	case value == "":
		return place{}, errors.New("it is empty: name " + inMemory + ", a file, or a postgres:// URL")
	case value == inMemory:
		return place{memory: true}, nil
	case !isURL:
		return place{file: value}, nil
	case scheme != "postgres" && scheme != "postgresql":
		return place{}, errors.New("it is a URL of no database that is known: PostgreSQL has postgres://user@host:5432/database, SQLite the name of a file")
	}
	u, err := url.Parse(value)
	if err != nil { // which has the URL in it
		return place{}, errors.New("it cannot be understood as a URL: special characters of a user or a password must be percent-encoded; the variable PGPASSWORD takes them as they are")
	}
	p := place{url: value}
	query := u.Query()
	p.schema = query.Get(schemaParameter)
	if v := query.Get(connsParameter); v != "" {
		if p.conns, err = strconv.Atoi(v); err != nil || p.conns < 1 {
			return place{}, fmt.Errorf("%s in it is not a number of connections", connsParameter)
		}
	}
	if query.Has(schemaParameter) { // the server would refuse it
		query.Del(schemaParameter)
		base, _, _ := strings.Cut(value, "?")
		p.url = strings.TrimSuffix(base+"?"+query.Encode(), "?")
	}
	return p, nil
}

// secret reports whether a value has a password in it.
func secret(value string) bool {
	u, err := url.Parse(value)
	if err != nil || u.Scheme == "" {
		return false
	}
	_, has := u.User.Password()
	return has || u.Query().Has("password")
}

// warn says that a password on the command line can be seen.
func (p *program) warn(flag, value string) {
	if secret(value) {
		fmt.Fprintf(p.err, "%s: whoever lists the processes of this machine sees the password in %s: use %s, or PGPASSWORD\n", p.app.Name, flag, dbVariable)
	}
}

// locate reads the env file and decides where the conversations are.
func (p *program) locate(c *cobra.Command) error {
	if err := loadEnv(p.envFile, c.Flags().Changed("env-file")); err != nil {
		return err
	}
	name, value := "--db", p.db
	if v := os.Getenv(dbVariable); v != "" && !c.Flags().Changed("db") {
		name, value = dbVariable, v
	} else {
		p.warn(name, value)
	}
	var err error
	if p.place, err = parsePlace(value); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if v := os.Getenv(listenVariable); v != "" && p.place.shared() {
		listen, err := parsePlace(v)
		if err == nil && !listen.shared() {
			err = errors.New("it is no postgres:// URL")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", listenVariable, err)
		}
		p.place.listen = listen.url
	}
	return nil
}

// chosen reports whether a variable that turns something on does.
func chosen(variable string) (bool, error) {
	v := os.Getenv(variable)
	on, err := strconv.ParseBool(cmp.Or(v, "false"))
	if err != nil {
		return false, fmt.Errorf("%s is %q: use 1 or 0", variable, v)
	}
	return on, nil
}
