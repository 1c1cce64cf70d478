// Package placetest starts object stores for tests. Each is a real server with its own protocol:
// SeaweedFS for S3, fake-gcs-server for Google Cloud Storage, and Azurite for Azure, as installed
// by scripts/*-deps. A store can be killed and restarted on its data. The proxy between it and its
// clients can hold back every byte, or answer in its place. The package starts processes and writes
// files of its own, and uses no other package of Tusk.
package placetest

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

const (
	bucket = "tusk"
	most   = 30 * time.Second // for a start or a stop
)

// Kind is the protocol of an object store.
type Kind string

// The kinds of object stores.
const (
	S3     Kind = "S3"
	Google Kind = "Google"
	Azure  Kind = "Azure"
)

// product is an object store program.
type product interface {
	// install returns the path of the program in the user's cache, and the script that installs it.
	install(cache string) (path, script string)
	// ports names the ports that it needs. The first is that of the protocol.
	ports() []string
	// command returns a command that serves a directory on ports. Clients reach it at address.
	command(program, dir, address string, ports map[string]int) *exec.Cmd
	// ready makes the bucket and writes an object.
	ready(address string) error
	// environment returns the credentials as environment variables for clients.
	environment() map[string]string
	// location returns the URL of a part of the bucket for Tusk.
	location(address, prefix string) string
	// pyarrow returns the same for Python: an expression for the file system, and the path in it.
	pyarrow(address, prefix string) string
	// durable reports whether it keeps acknowledged data when it is killed at any moment.
	durable() bool
}

var products = map[Kind]product{S3: seaweed{}, Google: fakeGoogle{}, Azure: azurite{}}

// Each runs a test on an object store of each kind.
func Each(t *testing.T, test func(*testing.T, *Server)) {
	for _, kind := range []Kind{S3, Google, Azure} {
		t.Run(string(kind), func(t *testing.T) { test(t, Start(t, kind)) })
	}
}

// Server is a running object store with one bucket.
type Server struct {
	product      product
	program, dir string
	ports        map[string]int // by name
	front        *front
	cmd          *exec.Cmd
}

// Start starts a server and stops it at the end of the test. If its program is missing, the test is
// skipped, or fails where all tests have to run.
func Start(t testing.TB, kind Kind) *Server {
	t.Helper()
	p := products[kind]
	program, err := find(p)
	if err != nil {
		if os.Getenv("CI") == "true" || os.Getenv("TUSK_TEST_ALL") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	s, err := run(p, program, t.TempDir())
	if err != nil { // perhaps another process took one of its ports
		s, err = run(p, program, t.TempDir())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	for name, value := range p.environment() {
		t.Setenv(name, value)
	}
	return s
}

// find returns the path of a program.
func find(p product) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	program, script := p.install(cache)
	if _, err := os.Stat(program); err != nil {
		return "", fmt.Errorf("no object store: run %s: %w", script, err)
	}
	return program, nil
}

// run starts a server with its data in dir.
func run(p product, program, dir string) (*Server, error) {
	taken, err := ports(p.ports()...)
	if err != nil {
		return nil, err
	}
	s := &Server{product: p, program: program, dir: dir, ports: taken}
	if s.front, err = newFront("127.0.0.1:" + strconv.Itoa(taken[p.ports()[0]])); err != nil {
		return nil, err
	}
	if err := s.Again(); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// ports finds different free ports. They are below the range that the system gives to clients, so
// that no client takes them while the server is down.
func ports(names ...string) (map[string]int, error) {
	found := map[string]int{}
	for tries := 0; len(found) < len(names); tries++ {
		port := 15_000 + rand.IntN(15_000)
		l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
		if err != nil && tries < 100 {
			continue
		}
		if err != nil {
			return nil, err
		}
		defer l.Close() // once all are found
		found[names[len(found)]] = port
	}
	return found, nil
}

// URL returns the archive's URL for a part of the bucket.
func (s *Server) URL(prefix string) string { return s.product.location(s.front.address(), prefix) }

// Pyarrow returns a part of the bucket for Python: an expression for a pyarrow file system, and the
// path in it.
func (s *Server) Pyarrow(prefix string) string { return s.product.pyarrow(s.front.address(), prefix) }

// Hold holds back all bytes of all connections, without closing them, until it is called with
// false.
func (s *Server) Hold(on bool) { s.front.held.Store(on) }

// Fail makes every request get a 503 until it is called with false. Requests under way are cut off.
func (s *Server) Fail(on bool) { s.front.turn(refuses, on) }

// Kill kills the server and cuts its connections. Again restarts it on its data.
func (s *Server) Kill() {
	s.front.turn(gone, true)
	if s.cmd == nil {
		return
	}
	if s.product.durable() {
		_ = s.cmd.Process.Kill()
	} else { // its clients see no difference
		time.Sleep(200 * time.Millisecond) // for what it is writing
		_ = s.cmd.Process.Signal(os.Interrupt)
		defer time.AfterFunc(most, func() { _ = s.cmd.Process.Kill() }).Stop()
	}
	_ = s.cmd.Wait()
	s.cmd = nil
}

// Again starts the server, and returns when it accepts objects.
func (s *Server) Again() error {
	log, err := os.OpenFile(s.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	s.cmd = s.product.command(s.program, s.dir, s.front.address(), s.ports)
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr = s.dir, log, log
	if err := s.cmd.Start(); err != nil {
		s.cmd = nil
		return err
	}
	s.front.turn(gone, false)
	for end := time.Now().Add(most); ; time.Sleep(50 * time.Millisecond) {
		err := s.product.ready("127.0.0.1:" + strconv.Itoa(s.ports[s.product.ports()[0]]))
		if err == nil {
			return nil
		}
		if time.Now().After(end) {
			said, _ := os.ReadFile(s.log())
			return fmt.Errorf("the object store does not start: %w: %s", err, said[max(0, len(said)-2000):])
		}
	}
}

func (s *Server) log() string { return filepath.Join(s.dir, "server.log") }

func (s *Server) stop() {
	s.Kill()
	_ = s.front.listener.Close()
}

// Trip calls Do once, when Left bytes have been read.
type Trip struct {
	R    io.Reader
	Left int // bytes left to read
	Do   func()
}

// Read implements io.Reader.
func (t *Trip) Read(p []byte) (int, error) {
	n, err := t.R.Read(p)
	if t.Left -= n; t.Left <= 0 && t.Do != nil {
		t.Do()
		t.Do = nil
	}
	return n, err
}
