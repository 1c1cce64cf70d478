package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// Server is a running server.
type Server struct {
	DSN  string // of a database from which others can be created
	Dir  string // the server's directory; empty if pgtest did not start it
	bin  string // the folder of its programs
	cmd  *exec.Cmd
	port int

	settings []string
}

// Start starts a server on a new data directory. Settings are name=value.
func Start(settings ...string) (*Server, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	return StartOf(bin, settings...)
}

// StartOf is like Start, with the programs in the given folder.
func StartOf(bin string, settings ...string) (*Server, error) {
	dir, err := os.MkdirTemp("", "tusk-pg-")
	if err != nil {
		return nil, err
	}
	s := &Server{Dir: dir, bin: bin}
	if err := s.init(); err != nil {
		s.Stop()
		return nil, err
	}
	for range 5 { // a port that was free may be taken a moment later
		if err = s.launch(settings); err == nil {
			return s, nil
		}
	}
	s.Stop()
	return nil, err
}

func (s *Server) init() error {
	account, err := unprivileged()
	if err != nil {
		return err
	}
	if account != nil {
		if err := os.Chown(s.Dir, int(account.Uid), int(account.Gid)); err != nil {
			return err
		}
	}
	cmd := exec.Command(filepath.Join(s.bin, "initdb"), "-D", filepath.Join(s.Dir, "data"), "-U", "postgres", "-A",
		"trust", "-E", "UTF8", "--no-sync")
	s.prepare(cmd, account)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	return nil
}

func (s *Server) launch(settings []string) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	s.port, s.settings = port, settings
	s.DSN = fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port)
	return s.run()
}

// run starts the server on its data and waits until it answers.
func (s *Server) run() error {
	account, err := unprivileged()
	if err != nil {
		return err
	}
	args := []string{"-D", filepath.Join(s.Dir, "data"), "-p", strconv.Itoa(s.port), "-k", s.Dir, "-c",
		"listen_addresses=127.0.0.1"}
	for _, setting := range s.settings {
		args = append(args, "-c", setting)
	}
	s.cmd = exec.Command(filepath.Join(s.bin, "postgres"), args...)
	s.prepare(s.cmd, account)
	log, err := os.OpenFile(filepath.Join(s.Dir, "log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := s.cmd.Start(); err != nil {
		return err
	}
	return s.await()
}

// Standby creates an asynchronous standby of a server that Start has started.
func (s *Server) Standby() (*Server, error) {
	account, err := unprivileged()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "tusk-pg-")
	if err != nil {
		return nil, err
	}
	if account != nil {
		if err := os.Chown(dir, int(account.Uid), int(account.Gid)); err != nil {
			return nil, err
		}
	}
	standby := &Server{Dir: dir, bin: s.bin}
	cmd := exec.Command(filepath.Join(s.bin, "pg_basebackup"), "-d", s.DSN, "-D", filepath.Join(dir, "data"), "-R", "-c",
		"fast", "--no-sync")
	standby.prepare(cmd, account)
	if out, err := cmd.CombinedOutput(); err != nil {
		standby.Stop()
		return nil, fmt.Errorf("pg_basebackup: %w: %s", err, out)
	}
	if err := standby.launch(s.settings); err != nil {
		standby.Stop()
		return nil, err
	}
	return standby, nil
}

// Exec runs a statement as the superuser.
func (s *Server) Exec(ctx context.Context, sql string) error { return s.exec(ctx, sql) }

func (s *Server) exec(ctx context.Context, sql string) error {
	c, err := pgx.Connect(ctx, s.DSN)
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	_, err = c.Exec(ctx, sql)
	return err
}

// Kill kills the server's parent process at once. Its children notice and end by
// themselves.
func (s *Server) Kill() error {
	if s.PID() == 0 {
		return errors.New("the server is not this test's")
	}
	return syscall.Kill(s.PID(), syscall.SIGKILL)
}

// Run starts a killed server again with the same data and port, as soon as the processes of
// the killed one have ended, and waits until it answers. PostgreSQL does not promise that
// they end. Run kills those that are left after twenty seconds, as an init system would do
// at once.
func (s *Server) Run() error {
	begun := time.Now()
	for left := false; ; time.Sleep(50 * time.Millisecond) {
		err := s.run()
		if err == nil || time.Since(begun) > time.Minute {
			return err
		}
		if !left && time.Since(begun) > 20*time.Second {
			left = true
			s.killLeft()
		}
	}
}

// killLeft kills the processes that work on the server's data, and writes to the server's log
// what they were doing.
func (s *Server) killLeft() {
	log, err := os.OpenFile(filepath.Join(s.Dir, "log"), os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return
	}
	defer log.Close()
	folders, _ := filepath.Glob("/proc/[0-9]*/cwd") // the pattern is sound
	for _, folder := range folders {
		process := filepath.Dir(folder)
		if at, err := os.Readlink(folder); err != nil || at != filepath.Join(s.Dir, "data") {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(process)); err == nil {
			doing, _ := os.ReadFile(filepath.Join(process, "cmdline"))
			status, _ := os.ReadFile(filepath.Join(process, "status"))
			fmt.Fprintf(log, "left and killed: %d %q\n%s\n", pid, doing, status)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// await waits until the server answers.
func (s *Server) await() error {
	gone := make(chan error, 1)
	cmd := s.cmd
	go func() { gone <- cmd.Wait() }()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		err := s.exec(ctx, "select 1")
		if err == nil {
			return nil
		}
		select {
		case <-gone:
			log, _ := os.ReadFile(filepath.Join(s.Dir, "log"))
			return fmt.Errorf("postgres ended: %s", log)
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// PID returns the process id of the server's parent process, or 0 if pgtest did
// not start the server.
func (s *Server) PID() int {
	if s.cmd == nil || s.cmd.Process == nil {
		return 0
	}
	return s.cmd.Process.Pid
}

// Stop stops the server and deletes its data.
func (s *Server) Stop() {
	if s.Dir == "" {
		return
	}
	if s.PID() != 0 {
		s.cmd.Process.Signal(syscall.SIGQUIT)
		for range 500 {
			if syscall.Kill(s.PID(), 0) != nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	os.RemoveAll(s.Dir)
}

// prepare lets a command run as an account, in a process group of its own.
func (s *Server) prepare(cmd *exec.Cmd, account *syscall.Credential) {
	cmd.Dir = s.Dir
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "TZ=UTC")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: account, Setpgid: true}
}

// unprivileged returns the account for a server if root starts it, and nil otherwise.
func unprivileged() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("PostgreSQL refuses to run as root, and there is no user postgres or nobody")
}

// binaries returns the folder of initdb and postgres, of the newest version.
func binaries() (string, error) {
	folders, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	for i := len(folders) - 1; i >= 0; i-- {
		if _, err := os.Stat(filepath.Join(folders[i], "initdb")); err == nil {
			return folders[i], nil
		}
	}
	path, err := exec.LookPath("initdb")
	if err != nil {
		return "", errors.New("neither initdb nor TUSK_TEST_POSTGRES: install Debian's package postgresql")
	}
	return filepath.Dir(path), nil
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
