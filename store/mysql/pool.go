package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	driversql "github.com/go-sql-driver/mysql"
)

// setup is run at the start of every session of our own pools.
const setup = "set session transaction isolation level read committed; set session time_zone = '+00:00', " +
	"session sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION', session innodb_lock_wait_timeout = 10, " +
	"session autocommit = 1, session sql_select_limit = default"

// unlimited is added to setup unless the DSN limits the duration of statements. To prune or to migrate may take longer
// than the server allows by default. MariaDB has the first setting, MySQL the second.
const unlimited = " /*M!100100 , session max_statement_time = 0 */ /*!50708 , session max_execution_time = 0 */"

// Pool opens a pool for a DSN of the form mysql://user:password@host:port/database
// (or mariadb://…), with the driver's own parameters after a question mark, and
//
//	tusk_one_node=1       work on a cluster of several writers; see Options.OneNode
//	socket=/path          connect through a Unix socket
//
// It reports whether the DSN has tusk_one_node=1. No connection is made yet.
func Pool(dsn string) (db *sql.DB, oneNode bool, err error) {
	connector, oneNode, err := connect(dsn)
	if err != nil {
		return nil, false, err
	}
	return newPool(connector), oneNode, nil
}

func newPool(connector driver.Connector) *sql.DB {
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(32)
	db.SetMaxIdleConns(32)
	db.SetConnMaxIdleTime(5 * time.Minute)
	return db
}

// connect reads a DSN and returns a connector that sets up its sessions.
func connect(dsn string) (_ driver.Connector, oneNode bool, err error) {
	config, oneNode, err := parse(dsn)
	if err != nil {
		return nil, false, err
	}
	connector, err := driversql.NewConnector(config)
	if err != nil {
		return nil, false, fmt.Errorf("database URL: %w", err)
	}
	s := &sessions{connector, setup + unlimited}
	if config.Params["max_statement_time"]+config.Params["max_execution_time"] != "" {
		s.setup = setup
	}
	return s, oneNode, nil
}

// parse reads a DSN. Its errors never reveal the password.
func parse(dsn string) (*driversql.Config, bool, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return nil, false, errors.New("database URL: cannot be read: write @ / # % in a password as %40 %2F %23 %25")
	}
	if u.Scheme != "mysql" && u.Scheme != "mariadb" {
		return nil, false, fmt.Errorf("database URL: scheme %q: want mysql:// or mariadb://", u.Scheme)
	}
	name := strings.Trim(u.Path, "/")
	if name == "" || strings.Contains(name, "/") {
		return nil, false, errors.New("database URL: names no database: want mysql://user:password@host:port/database")
	}
	parameters := u.Query()
	oneNode := false
	// tusk_allow_galera is the former name. A program of an earlier version may use the same URL during an upgrade.
	for _, name := range []string{"tusk_one_node", "tusk_allow_galera"} {
		switch value := parameters.Get(name); value {
		case "1":
			oneNode = true
		case "", "0":
		default:
			return nil, false, fmt.Errorf("database URL: %s=%q: want 1 or 0", name, value)
		}
	}
	socket := parameters.Get("socket")
	for _, own := range []string{"tusk_one_node", "tusk_allow_galera", "socket"} {
		parameters.Del(own)
	}
	config, err := driversql.ParseDSN("/?" + parameters.Encode())
	if err != nil {
		return nil, false, fmt.Errorf("database URL: parameters: %w", err)
	}
	config.User = u.User.Username()
	config.Passwd, _ = u.User.Password()
	config.DBName = name
	config.Net, config.Addr = "tcp", address(u)
	if socket != "" {
		config.Net, config.Addr = "unix", socket
	}
	config.InterpolateParams, config.MultiStatements = true, true
	config.MaxAllowedPacket = 0 // as large as the server accepts
	config.ClientFoundRows = false
	if config.Timeout == 0 {
		config.Timeout = 10 * time.Second
	}
	config.Logger = &driversql.NopLogger{}
	return config, oneNode, nil
}

func address(u *url.URL) string {
	host, port := u.Hostname(), u.Port()
	if host == "" {
		host = "127.0.0.1"
	}
	if port == "" {
		port = "3306"
	}
	return net.JoinHostPort(host, port)
}

// sessions makes connections whose sessions are set up.
type sessions struct {
	driver.Connector
	setup string
}

func (c *sessions) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.(driver.ExecerContext).ExecContext(ctx, c.setup, nil); err != nil {
		conn.Close()
		if codeOf(err) == codeUnknownVariable && strings.Contains(err.Error(), "innodb_") {
			err = errNoInnoDB
		}
		return nil, err
	}
	return conn, nil
}
