package servers

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/tuskqueue/tusk/store/mysql/mysqltest"
)

// MySQL is a running MariaDB server. Its settings are those of the tests' server with durable
// commits (innodb_flush_log_at_trx_commit=1), and MySQLSettings.
type MySQL struct {
	server *mysqltest.Server
	Admin  *sql.DB
	PID    int
	Addr   string
	Name   string // of the last database
	n      int
}

// MySQLSettings are set in addition to the defaults.
var MySQLSettings = []string{"--innodb-buffer-pool-size=1G", "--innodb-log-file-size=2G"}

// StartMySQL starts a server.
func StartMySQL() (*MySQL, error) {
	s, err := mysqltest.Launch(MySQLSettings...)
	if err != nil {
		return nil, err
	}
	m := &MySQL{server: s, PID: s.PID(), Addr: s.Addr()}
	if m.Admin, err = s.Admin(); err != nil {
		s.Stop()
		return nil, err
	}
	return m, nil
}

// Database creates an empty database and returns its DSN.
func (m *MySQL) Database() (dsn string, err error) {
	m.n++
	m.Name = fmt.Sprintf("bench_%d", m.n)
	return m.server.Create(m.Name)
}

// Drop drops the database of the last run.
func (m *MySQL) Drop() error { return m.server.Drop(m.Name) }

// Version returns the server's version.
func (m *MySQL) Version(ctx context.Context) (version string, err error) {
	err = m.Admin.QueryRowContext(ctx, "select version()").Scan(&version)
	return version, err
}

// Stop ends the server and removes its data.
func (m *MySQL) Stop() {
	m.Admin.Close()
	m.server.Stop()
}
