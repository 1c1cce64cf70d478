//go:build unix

package storm

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/ledgers"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

const (
	ledgerServers = 3 // and a standby of the last one
	ledgerCount   = 6
)

// cluster is several PostgreSQL servers with ledgers. The last server begins as a standby of the one before it, which
// is split when the standby is promoted.
type cluster struct {
	servers []*pgtest.Server
	split   atomic.Bool

	mu sync.Mutex // ledgers are moved, fenced and opened one operation at a time
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{}
	for range ledgerServers {
		server, err := pgtest.Start("max_connections=150", "deadlock_timeout=200ms")
		if err != nil {
			missingServer(t, "PostgreSQL", err)
		}
		t.Cleanup(server.Stop)
		c.servers = append(c.servers, server)
	}
	standby, err := c.servers[ledgerServers-1].Standby()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(standby.Stop)
	c.servers = append(c.servers, standby)
	return c
}

// dsn returns the URLs of all servers.
func (c *cluster) dsn() string {
	var all []string
	for _, server := range c.servers {
		all = append(all, server.DSN)
	}
	return strings.Join(all, " ")
}

func (c *cluster) hosts(t *testing.T) (all []string) {
	t.Helper()
	for _, server := range c.servers {
		all = append(all, hostOf(t, server.DSN))
	}
	return all
}

// through returns the URLs of all servers as a process reaches them through its door.
func (c *cluster) through(d *door, name string) (string, error) {
	var all []string
	for i, server := range c.servers {
		u, err := url.Parse(server.DSN)
		if err != nil {
			return "", err
		}
		u.Host = d.listeners[i].Addr().String()
		dsn, err := named(u.String(), name)
		if err != nil {
			return "", err
		}
		all = append(all, dsn)
	}
	return strings.Join(all, " "), nil
}

// name returns the name by which ledgers know a server.
func (c *cluster) name(i int) (string, error) {
	u, err := url.Parse(c.servers[i].DSN)
	if err != nil {
		return "", err
	}
	return u.Host + u.Path, nil
}

// killAll kills all servers and restarts them with their data.
func (c *cluster) killAll(meanwhile func() error) error {
	for _, server := range c.servers {
		if err := server.Kill(); err != nil {
			return err
		}
	}
	if err := meanwhile(); err != nil {
		return err
	}
	for _, server := range c.servers {
		if err := server.Run(); err != nil {
			return err
		}
	}
	return nil
}

// killOne kills one server, which stays away for up to three seconds.
func killOne(s *storm) error {
	server := s.ground.cluster.servers[s.random.IntN(ledgerServers)]
	s.count("kill of one server")
	s.log.write(event{Op: opFault, Text: crash})
	defer s.log.write(event{Op: opCalm, Text: crash})
	if err := server.Kill(); err != nil {
		return err
	}
	time.Sleep(time.Duration(s.random.IntN(3000)) * time.Millisecond)
	return server.Run()
}

// failOverOne has an asynchronous standby take the place of a server, which may lose what that acknowledged last.
func failOverOne(s *storm) error {
	s.count("failover")
	defer s.log.write(event{Op: opCalm, Text: failover})
	return s.ground.cluster.servers[s.random.IntN(ledgerServers-1)].FailOver(func() {
		s.log.write(event{Op: opFault, Text: failover})
	}, func() {
		time.Sleep(time.Duration(300+s.random.IntN(2000)) * time.Millisecond)
	})
}

// cutOffServer cuts all processes off from one server for longer than a lease: it refuses, or nothing passes.
func cutOffServer(s *storm) error {
	s.count(networkCut)
	target := s.ground.proxy.targets[s.random.IntN(ledgerServers)]
	if s.random.IntN(2) == 0 {
		s.ground.proxy.away.Store(&target)
		s.ground.proxy.cut(func(w *wire) bool { return w.target == target })
		defer s.ground.proxy.away.Store(nil)
	} else {
		defer s.ground.proxy.stall(func(w *wire) bool { return w.target == target })()
	}
	time.Sleep(stormLease + stormLease/2)
	return nil
}

// cutOffFromServer stalls the connections of one process to one server for longer than a lease.
func cutOffFromServer(s *storm) error {
	s.count(networkCut)
	p, target := s.any("worker"), s.ground.proxy.targets[s.random.IntN(ledgerServers)]
	defer s.ground.proxy.stall(func(w *wire) bool { return w.target == target && w.door == p.door })()
	time.Sleep(stormLease + stormLease/2)
	return nil
}

// operate carries out an operation on the ledgers as an operator would: again until it succeeds.
func (s *storm) operate(what string, do func(ctx context.Context, all *ledgers.Store) error) error {
	s.ground.cluster.mu.Lock()
	defer s.ground.cluster.mu.Unlock()
	all, ok := store.As[*ledgers.Store](s.client.Store())
	if !ok {
		return fmt.Errorf("%T has no ledgers", s.client.Store())
	}
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(300 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
		err := do(ctx, all)
		cancel()
		if err == nil {
			s.count(what)
			return nil
		}
		s.t.Logf("%s, again: %v", what, err)
		if time.Now().After(end) {
			s.violation("I24", "%s fails for two minutes: %v", what, err)
			return err
		}
	}
}

// moveLedger moves a ledger to another server, by a copy.
func moveLedger(s *storm) error {
	no, up := s.random.IntN(ledgerCount), ledgerServers
	if s.ground.cluster.split.Load() {
		up++
	}
	to, err := s.ground.cluster.name(s.random.IntN(up))
	if err != nil {
		return err
	}
	return s.operate("move of a ledger", func(ctx context.Context, all *ledgers.Store) error {
		if _, err := all.DropCopies(ctx, false); err != nil { // it may have been there before
			return err
		}
		_, err := all.Move(ctx, to, no)
		if err != nil && strings.Contains(err.Error(), "is on "+to+" already") {
			return nil
		}
		return err
	})
}

// fenceLedger fences a ledger for a moment.
func fenceLedger(s *storm) error {
	no := s.random.IntN(ledgerCount)
	return s.operate("fence of a ledger", func(ctx context.Context, all *ledgers.Store) error {
		if err := all.Fence(ctx, no); err != nil {
			return err
		}
		time.Sleep(time.Duration(s.random.IntN(1000)) * time.Millisecond)
		return all.Open(ctx, "", no)
	})
}

// splitServer promotes the standby, which gets one of its server's ledgers. It strikes once.
func splitServer(s *storm) error {
	c := s.ground.cluster
	if !c.split.CompareAndSwap(false, true) {
		return nil
	}
	from, err := c.name(ledgerServers - 1)
	if err != nil {
		return err
	}
	to, err := c.name(ledgerServers)
	if err != nil {
		return err
	}
	return s.operate("split of a server", func(ctx context.Context, all *ledgers.Store) error {
		places, err := all.Places(ctx)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(places, func(p ledgers.Place) bool { return p.Server == from })
		if i < 0 { // its ledgers have moved away
			return nil
		}
		_, err = all.Move(ctx, to, places[i].No)
		return err
	})
}

// ledgers checks I24: each ledger is open on one server, and none has leases left.
func (c *checker) ledgers() {
	if c.ground.cluster == nil {
		return
	}
	all, _ := store.As[*ledgers.Store](c.client.Store())
	places, err := all.Places(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	open := map[int]int{}
	for _, p := range places {
		if p.State != "open" {
			continue
		}
		open[p.No]++
		left, err := c.ground.cluster.leases(c.t.Context(), p)
		if err != nil {
			c.t.Fatal(err)
		}
		if left > 0 {
			c.violation("I20", "ledger %d has %d leases left", p.No, left)
		}
	}
	for no := range ledgerCount {
		if open[no] != 1 {
			c.violation("I24", "ledger %d is open %d times: %+v", no, open[no], places)
		}
	}
}

func (c *cluster) leases(ctx context.Context, p ledgers.Place) (n int, err error) {
	for i, server := range c.servers {
		if name, err := c.name(i); err != nil || name != p.Server {
			continue
		}
		conn, err := pgx.Connect(ctx, server.DSN)
		if err != nil {
			return 0, err
		}
		defer conn.Close(ctx)
		err = conn.QueryRow(ctx, "select count(*) from "+pgx.Identifier{p.Schema}.Sanitize()+".lease").Scan(&n)
		return n, err
	}
	return 0, fmt.Errorf("no server is called %s", p.Server)
}

// mourning is how long a worker may claim after its tasks were taken back, in other ledgers.
func (g *ground) mourning() int64 {
	if g != nil && g.cluster != nil { // tests of the judges have no ground
		return int64(stormLease)
	}
	return 0
}

// unreachable returns for how long faults struck between two times, if they can cut a worker off from one ledger while
// it claims in others.
func (c *checker) unreachable(from, until int64) (sum int64) {
	if c.ground == nil || c.ground.cluster == nil {
		return 0
	}
	for _, one := range c.troubles {
		sum += max(0, min(one.until, until)-max(one.from, from))
	}
	return sum
}
