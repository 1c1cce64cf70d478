// Package mysqltest gives tests a MySQL or MariaDB server: the one in TUSK_TEST_MYSQL if it is set, and otherwise a
// MariaDB server of its own, on loopback, in a folder that is deleted when the test binary ends.
//
// It may use processes, files and the driver. Only tests import it. The DSNs that it returns are for mysql.Open.
package mysqltest

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
)

// Server is a database server.
type Server struct {
	dsn    string // for a server that existed before; the others are started below
	folder string
	args   []string
	addr   string
	mu     sync.Mutex
	cmd    *exec.Cmd
}

var (
	shared  = map[bool]*Server{} // by whether commits are durable
	sharing sync.Mutex
	last    atomic.Int64
)

// Around holds the tests of a package, for code that runs them as a whole.
type Around struct{ Tests interface{ Run() int } }

// Run runs the tests and then stops the servers that they started.
func (a Around) Run() int {
	code := a.Tests.Run()
	Stop()
	return code
}

// Stop stops all servers that this process started.
func Stop() {
	sharing.Lock()
	defer sharing.Unlock()
	for _, s := range shared {
		s.Stop()
	}
	clear(shared)
}

// Database makes an empty database for a test and returns its DSN. Commits are not written through to disk: a test of
// durability starts a server of its own.
func Database(t testing.TB) string {
	t.Helper()
	return server(t, false).Database(t)
}

// DurableDatabase is like Database, on a server whose commits are written through.
func DurableDatabase(t testing.TB) string {
	t.Helper()
	return server(t, true).Database(t)
}

// Example makes an empty database for an example and returns its DSN. The database is deleted with the server, or stays
// on a server that existed before.
func Example() string {
	s, err := share(false)
	if err != nil {
		panic(err)
	}
	dsn, err := s.Create(fmt.Sprintf("tusk_test_%d_%d", os.Getpid(), last.Add(1)))
	if err != nil {
		panic(err)
	}
	return dsn
}

// Missing says why there is no server, if tests may be skipped for that reason.
func Missing() error {
	if mustRun() || os.Getenv("TUSK_TEST_MYSQL") != "" {
		return nil
	}
	_, _, err := programs()
	return err
}

func server(t testing.TB, durable bool) *Server {
	t.Helper()
	s, err := share(durable)
	if err != nil {
		missing(t, err)
	}
	return s
}

// share returns the server that all tests of this process use.
func share(durable bool) (*Server, error) {
	sharing.Lock()
	defer sharing.Unlock()
	if s := shared[durable]; s != nil {
		return s, nil
	}
	if dsn := os.Getenv("TUSK_TEST_MYSQL"); dsn != "" {
		shared[durable] = At(dsn)
		return shared[durable], nil
	}
	s, err := start(durable)
	if err == nil {
		shared[durable] = s
	}
	return s, err
}

// Start starts a server for a single test, with commits written through.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	s, err := Launch(args...)
	if err != nil {
		missing(t, err)
	}
	t.Cleanup(s.Stop)
	return s
}

// At returns the server of a DSN.
func At(dsn string) *Server { return &Server{dsn: dsn} }

// Launch is like Start, for a program that is not a test. The program must stop the server.
func Launch(args ...string) (*Server, error) { return start(true, args...) }

// missing skips a test that has no server, unless all tests have to run.
func missing(t testing.TB, err error) {
	t.Helper()
	if mustRun() || !errors.Is(err, errNoServer) {
		t.Fatalf("no MariaDB server: %v", err)
	}
	t.Skipf("SKIPPED, not tested: %v", err)
}

// mustRun reports whether no test may be skipped.
func mustRun() bool { return os.Getenv("CI") == "true" || os.Getenv("TUSK_TEST_ALL") == "1" }

var errNoServer = errors.New(
	"mariadbd is not installed (on Debian: apt-get install mariadb-server), and TUSK_TEST_MYSQL is not set")

// program finds a program of the server, including in folders that only root searches.
func program(names ...string) (string, error) {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
		for _, folder := range []string{"/usr/sbin", "/usr/local/sbin", "/usr/local/bin", "/usr/bin"} {
			if path := filepath.Join(folder, name); exec.Command(path, "--version").Run() == nil {
				return path, nil
			}
		}
	}
	return "", errNoServer
}

// mysqldEnv names a server of MySQL that tests start instead of MariaDB: the program and options that it needs.
const mysqldEnv = "TUSK_TEST_MYSQLD"

// programs returns the command that starts a server, and the one that makes its data.
func programs() (daemon, install []string, err error) {
	if mysqld := strings.Fields(os.Getenv(mysqldEnv)); len(mysqld) > 0 {
		mysqld = slices.Insert(mysqld, 1, "--no-defaults")
		return append(mysqld, "--loose-mysqlx=0"), append(slices.Clone(mysqld), "--initialize-insecure"), nil
	}
	mariadbd, err := program("mariadbd")
	if err != nil {
		return nil, nil, err
	}
	maker, err := program("mariadb-install-db")
	return []string{mariadbd, "--no-defaults"},
		[]string{maker, "--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"}, err
}

func start(durable bool, args ...string) (*Server, error) {
	daemon, install, err := programs()
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp(place(durable), "tusk-mysql-")
	if err != nil {
		return nil, err
	}
	s := &Server{folder: folder}
	user := ""
	if os.Getuid() == 0 {
		user = "--user=root"
	}
	data := filepath.Join(folder, "data")
	install = append(install, "--datadir="+data)
	if user != "" {
		install = append(install, user)
	}
	if out, err := exec.Command(install[0], install[1:]...).CombinedOutput(); err != nil {
		os.RemoveAll(folder)
		return nil, fmt.Errorf("%s: %w: %s", install[0], err, tail(out))
	}
	flush := []string{"--innodb-flush-log-at-trx-commit=1"}
	if !durable {
		flush = []string{"--innodb-flush-log-at-trx-commit=2", "--innodb-flush-method=nosync", "--skip-innodb-doublewrite"}
	}
	s.args = append(daemon, "--datadir="+data, "--bind-address=127.0.0.1",
		"--socket="+filepath.Join(folder, "s"),
		"--pid-file="+filepath.Join(folder, "pid"), "--tmpdir="+folder, "--log-error="+filepath.Join(folder, "log"),
		"--max-connections=500",
		"--innodb-buffer-pool-size=256M", "--innodb-log-file-size=128M")
	s.args = append(s.args, flush...)
	if user != "" {
		s.args = append(s.args, user)
	}
	s.args = append(s.args, args...)
	if err := s.Run(); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

// place returns where a server's data goes: into memory if it need not last.
func place(durable bool) string {
	const memory = "/dev/shm"
	if info, err := os.Stat(memory); durable || err != nil || !info.IsDir() {
		return ""
	}
	return memory
}

func tail(out []byte) []byte { return bytes.TrimSpace(out[max(0, len(out)-2000):]) }

// Run starts the server, also again after Kill, and waits until it answers.
func (s *Server) Run() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.addr == "" {
		port, err := freePort()
		if err != nil {
			return err
		}
		s.addr = "127.0.0.1:" + port
		s.args = append(s.args, "--port="+port)
	}
	s.cmd = exec.Command(s.args[0], s.args[1:]...)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	db, err := sql.Open("mysql", "root@tcp("+s.addr+")/")
	if err != nil {
		return err
	}
	defer db.Close()
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if err = db.Ping(); err == nil {
			return nil
		}
		if time.Now().After(end) {
			log, _ := os.ReadFile(filepath.Join(s.folder, "log")) // only adds to the message
			return fmt.Errorf("the server does not answer: %w: %s", err, tail(log))
		}
	}
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

// Kill kills the server at once, as a power failure would.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd != nil {
		s.cmd.Process.Kill() // it may have died before
		s.cmd.Wait()
		s.cmd = nil
	}
}

// PID returns the process id of a server that was started here, or 0 if it does not run.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return 0
	}
	return s.cmd.Process.Pid
}

// Addr returns the address on which the server listens.
func (s *Server) Addr() string { return s.addr }

// Stop kills the server and deletes its data.
func (s *Server) Stop() {
	s.Kill()
	if s.folder != "" {
		os.RemoveAll(s.folder)
	}
}

// Database makes an empty database for a test and returns its DSN.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("tusk_test_%d_%d", os.Getpid(), last.Add(1))
	dsn, err := s.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if admin, err := s.Admin(); err == nil {
			admin.Exec("drop database if exists " + name) // the server may be dead on purpose
			admin.Close()
		}
	})
	return dsn
}

// Create makes an empty database and returns its DSN.
func (s *Server) Create(name string) (dsn string, err error) {
	admin, err := s.Admin()
	if err != nil {
		return "", err
	}
	defer admin.Close()
	if _, err := admin.Exec("create database " + name); err != nil {
		return "", err
	}
	if s.dsn == "" {
		return "mysql://root@" + s.addr + "/" + name, nil
	}
	before, after, _ := strings.Cut(s.dsn, "?")
	before = before[:strings.LastIndexByte(before, '/')+1] + name
	if after != "" {
		before += "?" + after
	}
	return before, nil
}

// Drop drops a database.
func (s *Server) Drop(name string) error {
	admin, err := s.Admin()
	if err != nil {
		return err
	}
	defer admin.Close()
	_, err = admin.Exec("drop database " + name)
	return err
}

// Admin opens a pool without a database.
func (s *Server) Admin() (*sql.DB, error) {
	if s.dsn == "" {
		return sql.Open("mysql", "root@tcp("+s.addr+")/")
	}
	config := driver.NewConfig()
	rest := s.dsn[strings.Index(s.dsn, "://")+3:]
	rest, _, _ = strings.Cut(rest, "/")
	at := strings.LastIndexByte(rest, '@')
	config.User, config.Passwd, _ = strings.Cut(rest[:max(at, 0)], ":")
	config.Net, config.Addr = "tcp", rest[at+1:]
	connector, err := driver.NewConnector(config)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}
