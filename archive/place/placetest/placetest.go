// Package placetest starts object stores for tests, each a real server with a protocol of its own:
// SeaweedFS for S3, fake-gcs-server for Google Cloud Storage, and Azurite for Azure, as scripts/*-deps
// install them. A store can be killed and started again on its data, and what is between it and its
// clients can hold every byte back, or answer in its place. It touches processes and files of its
// own, and nothing of Tusk.
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
	most   = 30 * time.Second // for a start, and for an end
)

// Kind is a protocol that an object store may speak.
type Kind string

// The kinds of object stores.
const (
	S3     Kind = "S3"
	Google Kind = "Google"
	Azure  Kind = "Azure"
)

// product is a program that is an object store.
type product interface {
	// install returns the path of the program, as a script installs it in the user's cache.
	install(cache string) (path, script string)
	// ports names those that it wants; the first is that of the protocol.
	ports() []string
	// command serves a folder on ports. Clients reach it at an address.
	command(program, dir, address string, ports map[string]int) *exec.Cmd
	// ready makes the bucket and writes an object.
	ready(address string) error
	// environment has the credentials, as clients read them.
	environment() map[string]string
	// location is the URL of a part of the bucket, as Tusk takes it.
	location(address, prefix string) string
	// pyarrow is the same in Python: a file system, and the path in it.
	pyarrow(address, prefix string) string
	// durable reports whether it keeps what it has acknowledged when it is killed at any moment.
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
	ports        map[string]int // by their names
	front        *front
	cmd          *exec.Cmd
}

// Start starts a server that the end of the test stops. Without its program the test is skipped,
// or fails where all tests have to run.
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
	if err != nil { // another took one of its ports, say
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

// run starts a server whose data is in a folder.
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

// ports finds free ports, all different. They are below those that the system gives to clients, so
// that nobody takes them while the server is down.
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
		defer l.Close() // when all are found
		found[names[len(found)]] = port
	}
	return found, nil
}

// URL is what the archive calls a part of the bucket.
func (s *Server) URL(prefix string) string { return s.product.location(s.front.address(), prefix) }

// Pyarrow is a part of the bucket in Python: an expression for a file system of pyarrow and the path in it.
func (s *Server) Pyarrow(prefix string) string { return s.product.pyarrow(s.front.address(), prefix) }

// Hold keeps all bytes of all connections back until it is called with false: nobody is told.
func (s *Server) Hold(on bool) { s.front.held.Store(on) }

// Fail has every request answered with 503 until it is called with false. Requests under way are cut.
func (s *Server) Fail(on bool) { s.front.turn(refuses, on) }

// Kill kills the server and cuts its connections. Again starts it on its data.
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

// Again starts the server, and returns when it takes objects.
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

// Trip does something once, when so much has been read.
type Trip struct {
	R    io.Reader
	Left int // bytes until then
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
