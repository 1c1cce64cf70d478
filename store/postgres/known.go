package postgres

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// known is what the engine remembers about the database to save queries. The engine forgets it
// with every new connection, and after the database was unavailable: the address may then
// belong to another server, which lacks the latest writes of the previous one.
type known struct {
	mark  string   // marks connections that meet has seen
	lanes sync.Map // lanes (int64) that have a name

	learns atomic.Bool // learnNames is running

	mu     sync.Mutex
	named  time.Time // since when lanes are remembered
	home   time.Time // when the tables were last known to belong to this server
	works  bool      // the engine's role is known to have the privileges that it needs to work
	looked time.Time // when maintenance last searched for lanes without a name
}

func (k *known) forget() {
	k.lanes.Clear()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.home, k.looked = time.Time{}, time.Time{}
}

// meet forgets everything known if it has not seen the connection before.
func (k *known) meet(c *pgx.Conn) {
	data := c.PgConn().CustomData()
	if _, met := data[k.mark]; !met {
		data[k.mark] = true
		k.forget()
	}
}

// hasName reports whether the engine remembers that a lane has a name. Maintenance deletes the
// names of lanes only after they were idle for longer than any engine remembers them.
func (k *known) hasName(lane int64) bool {
	k.mu.Lock()
	old := time.Since(k.named) > namesFor
	if old {
		k.named = time.Now()
	}
	k.mu.Unlock()
	if old {
		k.lanes.Clear()
	}
	_, is := k.lanes.Load(lane)
	return is
}

const (
	namesFor = 10 * time.Minute
	idleLane = 6 * namesFor // after this time an idle lane is forgotten
)

func (k *known) isHome() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.home.IsZero() && time.Since(k.home) < homeEvery
}

func (k *known) mayWork() bool {
	home := k.isHome()
	k.mu.Lock()
	defer k.mu.Unlock()
	return home && k.works
}

func (k *known) setHome(works bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.home, k.works = time.Now(), works
}

// look reports whether it is time to search for lanes without a name.
func (k *known) look() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.looked.IsZero() && time.Since(k.looked) < lanesEvery {
		return false
	}
	k.looked = time.Now()
	return true
}

const (
	lanesEvery = 30 * time.Second
	homeEvery  = time.Hour
)

// nameLost gives the names of their queues back to lanes that hold tasks and have lost their
// names in a failover or a restore. Otherwise no claim would read these lanes.
func (s *Store) nameLost(ctx context.Context, term int64) error {
	if !s.known.look() {
		return nil
	}
	var lost []int64
	into := func(raw [][]byte) error {
		lost = append(lost, int64Of(raw[0]))
		return nil
	}
	err := s.read(ctx, s.pinned(s.do("leads_still", term), s.do("lost_lanes").into(into)))
	if lanes := lost; err == nil && len(lanes) > 0 {
		lost = nil
		err = s.write(ctx, s.pinned(s.do("hold_lead", term), s.do("name_lost_lanes", lanes),
			s.do("nameless", lanes).into(into)))
	}
	if err != nil {
		return err
	}
	if len(lost) > 0 {
		return fmt.Errorf(
			"%d lanes hold tasks and have no name, such as %d: start a worker of their queues, or enqueue a task to them",
			len(lost), lost[0])
	}
	return nil
}
