package ledgers_test

import (
	"sync/atomic"
	"testing"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/ledgers"
	"github.com/tuskqueue/tusk/store/storetest"
)

// citusEngine makes queues of three ledgers on two workers. Users' transactions begin on the nodes
// in turn.
func citusEngine(t *testing.T, prepare func(*ledgers.Store)) storetest.Engine {
	c := citus(t)
	var turn atomic.Int32
	return storetest.Engine{
		Shared: true,
		New: func(t testing.TB) func() store.Store {
			dsn := c.queue(t, 3, "pool_max_conn_idle_time=50ms", "pool_health_check_period=25ms")
			return func() store.Store {
				s := openCitus(t, dsn)
				prepare(s)
				return s
			}
		},
		Begin: func(t testing.TB, _ store.Store) (tx any, commit, rollback func() error) {
			return begin(t, c.dsns[int(turn.Add(1))%len(c.dsns)])
		},
	}
}

func TestCitusConformanceSpread(t *testing.T) {
	e := citusEngine(t, func(*ledgers.Store) {})
	e.Spread = true
	storetest.Run(t, e)
}

func TestCitusConformancePinned(t *testing.T) {
	storetest.Run(t, citusEngine(t, (*ledgers.Store).PinAll))
}
