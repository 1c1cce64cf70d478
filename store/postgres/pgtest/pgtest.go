// Package pgtest gives tests a real PostgreSQL server. It is the one that
// TUSK_TEST_POSTGRES names, or one that pgtest starts on this machine for the test
// binary: as an unprivileged user, on loopback, with default settings except for
// port, socket and data directory. Each test gets a database of its own.
//
// The package is for tests only and knows nothing about Tusk. Without a server,
// tests are skipped, or fail if CI=true or TUSK_TEST_ALL=1.
package pgtest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
)

var shared struct {
	once   sync.Once
	server *Server
	err    error
}

// Main runs the tests of a binary and stops the server that they started.
func Main(m interface{ Run() int }) {
	code := m.Run()
	if s := shared.server; s != nil {
		for _, name := range databases.templates {
			if s.cmd != nil {
				break // they are deleted with the server
			}
			if err := s.exec(context.Background(), "drop database "+name); err != nil {
				fmt.Fprintln(os.Stderr, "drop database:", err)
			}
		}
		s.Stop()
	}
	os.Exit(code)
}

// DSN creates a database for a test and returns its DSN. Settings are appended as the
// connection's parameters.
func DSN(t testing.TB, settings ...string) string {
	t.Helper()
	return server(t).Database(t, settings...)
}

// server returns the server of this test binary.
func server(t testing.TB) *Server {
	t.Helper()
	shared.once.Do(func() {
		if dsn := os.Getenv("TUSK_TEST_POSTGRES"); dsn != "" {
			shared.server = &Server{DSN: dsn}
			return
		}
		shared.server, shared.err = Start()
	})
	if shared.err != nil {
		if os.Getenv("CI") == "true" || os.Getenv("TUSK_TEST_ALL") == "1" {
			t.Fatalf("no PostgreSQL server: %v", shared.err)
		}
		t.Skipf("no PostgreSQL server: %v", shared.err)
	}
	return shared.server
}

var databases struct {
	sync.Mutex
	n         int
	templates []string
}

func newName() string {
	databases.n++
	return fmt.Sprintf("tusk_test_%d_%d", os.Getpid(), databases.n)
}

// Template creates databases that all have the same initial content. Prepare is called once;
// each test gets a copy of the database that it prepared.
type Template struct {
	Prepare func(dsn string) error
	name    string // of the database; empty if it is not created yet
}

// DSN is like the function DSN.
func (p *Template) DSN(t testing.TB, settings ...string) string {
	t.Helper()
	s := server(t)
	databases.Lock()
	defer databases.Unlock()
	if p.name == "" {
		name := newName()
		if err := s.exec(context.Background(), "create database "+name); err != nil {
			t.Fatalf("create database: %v", err)
		}
		databases.templates = append(databases.templates, name)
		if err := p.Prepare(s.dsnOf(t, name)); err != nil {
			t.Fatalf("prepare database: %v", err)
		}
		p.name = name
	}
	return s.database(t, newName(), " template "+p.name, settings)
}

// Database creates a database that is dropped at the end of the test.
func (s *Server) Database(t testing.TB, settings ...string) string {
	t.Helper()
	databases.Lock()
	name := newName()
	databases.Unlock()
	return s.database(t, name, "", settings)
}

func (s *Server) database(t testing.TB, name, options string, settings []string) string {
	t.Helper()
	ctx := context.Background()
	if err := s.exec(ctx, "create database "+name+options); err != nil {
		t.Fatalf("create database: %v", err)
	}
	t.Cleanup(func() {
		if err := s.exec(ctx, "drop database if exists "+name+" with (force)"); err != nil && s.cmd != nil &&
			s.cmd.Process.Signal(syscall.Signal(0)) == nil {
			t.Logf("drop database: %v", err)
		}
	})
	return s.dsnOf(t, name, settings...)
}

func (s *Server) dsnOf(t testing.TB, name string, settings ...string) string {
	t.Helper()
	u, err := url.Parse(s.DSN)
	if err != nil {
		t.Fatalf("TUSK_TEST_POSTGRES must be a URL: %v", err)
	}
	u.Path = "/" + name
	q := u.Query()
	for _, setting := range settings {
		key, value, _ := strings.Cut(setting, "=")
		q.Set(key, value)
	}
	u.RawQuery = q.Encode()
	return u.String()
}
