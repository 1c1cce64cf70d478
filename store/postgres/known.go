package postgres

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk/store/migrate"
)

// known is what the engine remembers of the database, so as not to ask each time. It is
// forgotten with every new connection, and when the database was away: behind the same
// address there may be another server by now, which lacks the last moment of the one before.
type known struct {
	mark  string   // on connections that were met
	lanes sync.Map // int64: those that have a name

	learns atomic.Bool // which of those that users' transactions named have one

	mu     sync.Mutex
	named  time.Time // since when lanes are remembered
	home   time.Time // when the tables were last seen to be of this server
	works  bool      // and the role to have what it needs to work
	looked time.Time // when maintenance last looked for lanes without a name
}

func (k *known) forget() {
	k.lanes.Clear()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.home, k.looked = time.Time{}, time.Time{}
}

// meet takes note of a connection.
func (k *known) meet(c *pgx.Conn) {
	data := c.PgConn().CustomData()
	if _, met := data[k.mark]; !met {
		data[k.mark] = true
		k.forget()
	}
}

// hasName reports whether a lane is remembered to have a name. Maintenance forgets the
// names of lanes that have been idle for longer than anybody remembers them.
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
	idleLane = 6 * namesFor // after which an idle lane is forgotten
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

// look reports whether it is time to look for lanes without a name.
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
	homeEvery  = migrate.SeenEvery // with it a program says that it runs
)

// nameLost gives lanes that hold tasks and have no name the name of the queue, which no
// claim would look at otherwise. A failover or a restore may have taken it.
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
