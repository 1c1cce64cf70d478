//go:build unix

package storm

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/internal/cbfake"
)

// roleCouchbase is the role of a cluster: the fake from the engine's tests, in a process that can be killed.
const roleCouchbase = "couchbase"

// couchServer is such a process. Its journal has everything that it has acknowledged; the next process continues from
// it.
type couchServer struct {
	cbfake.Options
	log  string
	cmd  *exec.Cmd
	hold io.Closer // closing it ends the process

	mu    sync.Mutex // guards the fields below: faults strike two at a time
	order cbfake.Order
	ahead time.Duration // how far its clock has jumped
}

const couchNodes = 3

func startCouchbase(t *testing.T, dir string) *couchServer {
	t.Helper()
	c := &couchServer{Options: cbfake.Options{Nodes: couchNodes, Journal: filepath.Join(dir, "couchbase.journal")},
		log: filepath.Join(dir, "couchbase.log"), order: cbfake.Order{Remember: 2 * forgotten}}
	var err error
	if c.Addresses, err = c.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.kill)
	if err := c.remind(); err != nil {
		t.Fatal(err)
	}
	return c
}

// run restarts the process at its former addresses.
func (c *couchServer) run() error {
	addresses, err := c.start()
	if err != nil {
		return err
	}
	if !slices.Equal(addresses, c.Addresses) {
		return fmt.Errorf("the cluster is at %v now, and was at %v", addresses, c.Addresses)
	}
	return c.remind()
}

// remind tells a new process which faults to produce, and how far its clock has jumped.
func (c *couchServer) remind() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	jump := c.order
	jump.Jump = c.ahead
	return cbfake.Send(c.Addresses[0].Web, jump)
}

// start starts the process and returns its addresses.
func (c *couchServer) start() (addresses []cbfake.Address, err error) {
	text, err := json.Marshal(c.Options)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(c.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	c.cmd = exec.Command(self, string(text))
	c.cmd.Env = append(os.Environ(), playRole+"="+roleCouchbase)
	c.cmd.Stderr = log
	if c.hold, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("the cluster did not start: %w", err)
	}
	return addresses, json.Unmarshal(line, &addresses)
}

func (c *couchServer) kill() {
	c.cmd.Process.Kill()
	c.cmd.Wait()
}

// give changes the faults that the process produces, with immediate effect.
func (c *couchServer) give(change func(o *cbfake.Order)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.order)
	err := cbfake.Send(c.Addresses[0].Web, c.order)
	c.ahead += c.order.Jump
	c.order.ForgetLocks, c.order.FailOver, c.order.Jump = false, 0, 0
	return err
}

// playCouchbase runs a cluster until it is killed or its parent process has ended.
func playCouchbase(options string) int {
	var o cbfake.Options
	err := json.Unmarshal([]byte(options), &o)
	var c *cbfake.Cluster
	for end := time.Now().Add(10 * time.Second); err == nil; time.Sleep(50 * time.Millisecond) {
		if c, err = cbfake.StartWith(o); err == nil {
			break
		}
		if strings.Contains(err.Error(), "in use") && time.Now().Before(end) { // connections of the previous process
			err = nil
		}
	}
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(c.Addresses())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	io.Copy(io.Discard, os.Stdin)
	return 0
}

// ports returns the ports of all nodes, two per node.
func (c *couchServer) ports() (all []string) {
	for _, a := range c.Addresses {
		all = append(all, a.KV, a.Web)
	}
	return all
}

// dsn returns a database URL that leads through a door, or straight to the server if the door is nil.
func (c *couchServer) dsn(d *door) string {
	u := url.URL{Scheme: "couchbase", User: url.UserPassword(cbfake.User, cbfake.Password), Host: c.Addresses[0].KV,
		Path: cbfake.Bucket, RawQuery: "sasl=plain&durability=majority"}
	if d != nil {
		var ports []string
		for _, l := range d.listeners {
			ports = append(ports, fmt.Sprint(l.Addr().(*net.TCPAddr).Port))
		}
		u.Host, u.User = d.addr(), url.UserPassword(cbfake.User+"@"+strings.Join(ports, ","), cbfake.Password)
	}
	return u.String()
}

// forgotten is how far back a failover forgets writes that were not durable.
const forgotten = time.Second

// spoilRequests spoils three percent of the requests: the request or its answer is lost, or it is refused for now.
func spoilRequests(s *storm) error {
	s.count("spoilt seconds")
	err := s.ground.cb.give(func(o *cbfake.Order) { o.Percent = 3 })
	time.Sleep(time.Duration(1000+s.random.IntN(3000)) * time.Millisecond)
	return errors.Join(err, s.ground.cb.give(func(o *cbfake.Order) { o.Percent = 0 }))
}

// forgetLocks removes all locks, several times in a row.
func forgetLocks(s *storm) error {
	for range 10 {
		if err := s.ground.cb.give(func(o *cbfake.Order) { o.ForgetLocks = true }); err != nil {
			return err
		}
		time.Sleep(time.Duration(s.random.IntN(100)) * time.Millisecond)
	}
	s.count("forgotten locks")
	return nil
}

// failOverNode makes the vbuckets of a node forget what was not durable. Acknowledged writes stay.
func failOverNode(s *storm) error {
	s.count("failover of a node")
	s.log.write(event{Op: opFault, Text: crash}) // a lease may be forgotten
	defer s.log.write(event{Op: opCalm, Text: crash})
	return s.ground.cb.give(func(o *cbfake.Order) { o.FailOver, o.From, o.Last = 21, s.random.IntN(64), forgotten })
}

// leaveIndexBehind makes the index show the state of two seconds ago.
func leaveIndexBehind(s *storm) error {
	s.count("index behind")
	err := s.ground.cb.give(func(o *cbfake.Order) { o.Lag = 2 * time.Second })
	s.later(8*time.Second, func() { s.ground.cb.give(func(o *cbfake.Order) { o.Lag = 0 }) })
	return err
}

// jumpClock moves the clock of all nodes forward or back by some seconds.
func jumpClock(s *storm) error {
	s.count("jump of the clock")
	by := time.Duration(s.random.IntN(10_000)-5000) * time.Millisecond
	c := s.ground.cb
	c.mu.Lock()
	ahead := event{Op: opClock, Asked: int64(c.ahead + by)}
	c.mu.Unlock()
	s.log.write(ahead)
	defer s.log.write(ahead)
	return c.give(func(o *cbfake.Order) { o.Jump = by })
}
