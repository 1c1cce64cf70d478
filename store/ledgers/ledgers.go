// Package ledgers is the engine for queues that span several PostgreSQL servers. A queue is divided into ledgers. Each
// ledger is a complete queue of package store/postgres in a schema of its own, such as tusk_0_of_8 to tusk_7_of_8. A
// task stays in one ledger. Ledgers can be added later (schema.go) and moved between servers (move.go).
//
// The engine is a router. It decides which ledger stores a task (place.go), claims from the ledgers in turn (claim.go),
// elects one leader for all of them (keep.go) and combines their answers (read.go, sums.go). Everything else is done by
// store/postgres; the router has no SQL about tasks. No call waits for a server that is known to be unreachable
// (away.go).
package ledgers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// Most is the maximum number of ledgers.
const Most = 64

// Options configure an engine. The zero value of a field is its default.
type Options struct {
	// Schema is the prefix of the schema names: NAME_0_of_8 and so on. The default is postgres.DefaultSchema.
	Schema string
	// Quiet turns notifications off. Workers then find tasks by polling.
	Quiet bool

	net *citus
}

// Store is a queue that is divided into ledgers. It is safe for concurrent use.
type Store struct {
	known   atomic.Pointer[[]*server]
	left    []*server // servers that were removed or replaced
	o       Options
	owned   bool // Close closes the pools
	pinned  func(queue string) bool
	divide  atomic.Int32 // how many ledgers Migrate creates
	divided atomic.Int32 // the number of ledgers that keys are divided among

	mu     sync.Mutex   // held during a look for ledgers
	begun  atomic.Int64 // number of looks begun
	ended  int64        // number of the last look that succeeded; guarded by mu
	all    atomic.Pointer[[]*ledger]
	life   context.Context
	close  context.CancelFunc
	probes sync.WaitGroup // functions run by start
	starts sync.Mutex     // orders start and the end of life

	turns      turns
	listeners  listeners
	leases     leases
	far        far
	followUps  chan struct{} // has one element for each follow-up in progress (finish.go)
	net        *citus        // nil if the servers are not a cluster
	comesApart bool          // a transaction may commit on one server before the other

	unseen   atomic.Pointer[unseen] // what the last look may have missed
	homeless atomic.Bool            // this process leads, but could not renew its term at home

	onStep func(step string)
}

// server is a database with ledgers.
type server struct {
	pool      *pgxpool.Pool
	name      string // for display, without secrets
	attendant *postgres.Attendant
	answered  atomic.Bool // it has answered a look at least once

	debt debt

	mu      sync.Mutex
	running postgres.Running // as last seen
	probes  time.Time        // when its ledgers that are away are probed next

	dialing  sync.Mutex
	failedAt time.Time // when a probe's dial last failed
	refused  error     // how it was refused, or nil if it failed in another way
}

var _ store.Store = (*Store)(nil)

// Open connects to databases and finds the ledgers in them. The DSNs are those of store/postgres. The parameter
// tusk_schema must be the same in all of them.
func Open(ctx context.Context, dsns ...string) (*Store, error) {
	var pools []*pgxpool.Pool
	var o Options
	fail := func(err error) (*Store, error) {
		for _, p := range pools {
			p.Close()
		}
		return nil, fmt.Errorf("open: %w", err)
	}
	for i, dsn := range dsns {
		pool, schema, err := postgres.Connect(ctx, dsn)
		if err != nil {
			return fail(err)
		}
		pools = append(pools, pool)
		if i > 0 && schema != o.Schema {
			return fail(fmt.Errorf("tusk_schema is %q for one database and %q for another: name the same", o.Schema, schema))
		}
		o.Schema = schema
	}
	s, err := New(ctx, pools, o)
	if err != nil {
		return fail(err)
	}
	s.owned = true
	return s, nil
}

// New returns an engine that uses open pools, one for each database. The caller closes the pools. New finds the
// existing ledgers; in an empty database, Divide and Migrate create them. The error is store.ErrUnavailable if no
// database answers.
func New(ctx context.Context, pools []*pgxpool.Pool, o Options) (*Store, error) {
	if len(pools) == 0 {
		return nil, errors.New("ledgers: no database is named")
	}
	if o.Schema == "" {
		o.Schema = postgres.DefaultSchema
	}
	s := &Store{o: o, pinned: isPinned, net: o.net, comesApart: o.net != nil,
		followUps: make(chan struct{}, mostFollowUps)}
	s.life, s.close = context.WithCancel(context.Background())
	s.known.Store(new([]*server))
	for _, pool := range pools {
		s.add(pool, nil)
	}
	if _, err := s.find(ctx); err != nil && !errors.Is(err, store.ErrSchemaMissing) {
		s.close()
		return nil, fmt.Errorf("ledgers: %w", err)
	}
	s.start(s.watch)
	return s, nil
}

// start runs a function in the background. Close waits for it. start reports false if the store is closed.
func (s *Store) start(do func()) bool {
	s.starts.Lock()
	defer s.starts.Unlock()
	if s.life.Err() != nil {
		return false
	}
	s.probes.Go(do)
	return true
}

// add adds a server to the known ones. If the server instead is known, it is replaced.
func (s *Store) add(pool *pgxpool.Pool, instead *server) *server {
	c := pool.Config().ConnConfig
	at := &server{pool: pool, name: fmt.Sprintf("%s:%d/%s", c.Host, c.Port, c.Database),
		attendant: postgres.NewAttendant(pool)}
	all := slices.Clone(s.servers())
	if i := slices.Index(all, instead); i >= 0 {
		all[i] = at
		s.left = append(s.left, instead)
	} else {
		all = append(all, at)
	}
	s.known.Store(&all)
	return at
}

// leave removes a server from the known ones, unless this process knows of a ledger on it. It reports whether the
// server was removed.
func (s *Store) leave(at *server) bool {
	s.mu.Lock() // no look that includes the server is in progress
	defer s.mu.Unlock()
	all := s.all.Load()
	if all == nil || slices.ContainsFunc(*all, func(l *ledger) bool { on, _ := l.whereabouts(); return on == at }) {
		return false
	}
	rest := slices.DeleteFunc(slices.Clone(s.servers()), func(other *server) bool { return other == at })
	s.known.Store(&rest)
	s.left = append(s.left, at)
	at.attendant.Close()
	return true
}

func (s *Store) servers() []*server { return *s.known.Load() }

// Close closes the engine, and the pools if Open made them.
func (s *Store) Close() error {
	s.starts.Lock()
	s.close()
	s.starts.Unlock()
	s.probes.Wait()
	var err error
	if all := s.all.Load(); all != nil {
		for _, l := range *all {
			err = errors.Join(err, l.end())
		}
	}
	for _, at := range append(s.left, s.servers()...) {
		at.attendant.Close()
		if s.owned {
			at.pool.Close()
		}
	}
	if s.net != nil {
		s.net.pool.Close()
	}
	return err
}

// ledgers returns all ledgers, starting with home. It searches the servers if no ledger is known yet.
func (s *Store) ledgers(ctx context.Context) ([]*ledger, error) {
	if all := s.all.Load(); all != nil {
		return *all, nil
	}
	if _, err := s.find(ctx); err != nil {
		return nil, err
	}
	return *s.all.Load(), nil
}

// home returns the ledger that stores records and elects the leader.
func (s *Store) home(ctx context.Context) (*ledger, error) {
	all, err := s.ledgers(ctx)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// atHome asks the home ledger.
func atHome[T any](ctx context.Context, s *Store, do question[T]) (answer T, err error) {
	l, err := s.home(ctx)
	if err != nil {
		return answer, err
	}
	return ask(ctx, l, do)
}

// each calls do for all ledgers concurrently. An answer is valid if its error is nil.
func each[T any](all []*ledger, do func(no int, l *ledger) (T, error)) ([]T, []error) {
	answers, errs := make([]T, len(all)), make([]error, len(all))
	var done sync.WaitGroup
	for no, l := range all[1:] {
		done.Go(func() { answers[no+1], errs[no+1] = do(no+1, l) })
	}
	answers[0], errs[0] = do(0, all[0])
	done.Wait()
	return answers, errs
}

// fromAll asks all ledgers concurrently, through ask or query. It fails unless all of them answer.
func fromAll[T any](
	ctx context.Context, s *Store, by func(context.Context, *ledger, question[T]) (T, error), do question[T],
) ([]T, error) {
	all, err := s.ledgers(ctx)
	if err != nil {
		return nil, err
	}
	answers, errs := each(all, func(_ int, l *ledger) (T, error) { return by(ctx, l, do) })
	return answers, errors.Join(errs...)
}

// together asks the ledgers of each server in one round trip. do makes that trip, for the engines of the ledgers at the
// given places in all. If it fails, or takes long because one of them is locked, each ledger is asked separately, so do
// may run twice for a ledger. An answer is valid if its error is nil.
func together[T any](
	ctx context.Context, s *Store, all []*ledger,
	do func(ctx context.Context, places []int, on []*postgres.Store) ([]T, error),
) ([]T, []error) {
	answers, errs, told := make([]T, len(all)), make([]error, len(all)), make([]bool, len(all))
	var done sync.WaitGroup
	for _, at := range s.servers() {
		places, engines := presentAt(all, at)
		if len(places) < 2 {
			continue
		}
		done.Go(func() {
			within, cancel := atFirst(ctx, probeWithin)
			defer cancel()
			parts, err := askTogether(within, all, places, func(ctx context.Context) ([]T, error) {
				return do(ctx, places, engines)
			})
			for i, place := range places {
				if err == nil {
					answers[place], told[place] = parts[i], true
				}
			}
		})
	}
	done.Wait()
	inTurn(all, func(i int, l *ledger) {
		if told[i] {
			return
		}
		answers[i], errs[i] = ask(ctx, l, func(ctx context.Context, e *postgres.Store) (one T, err error) {
			parts, err := do(ctx, []int{i}, []*postgres.Store{e})
			if err == nil {
				one = parts[0]
			}
			return one, err
		})
	})
	return answers, errs
}

// askTogether makes one round trip for ledgers of the same server. If it takes long or fails, any of them may be the
// cause, so all of them are probed.
func askTogether[T any](
	ctx context.Context, all []*ledger, places []int, trip func(ctx context.Context) ([]T, error),
) ([]T, error) {
	suspect := func() {
		for _, place := range places {
			all[place].suspect()
		}
	}
	slow := time.AfterFunc(suspectAfter, suspect)
	defer slow.Stop()
	answers, err := ask(ctx, all[places[0]], func(ctx context.Context, _ *postgres.Store) ([]T, error) {
		return trip(ctx)
	})
	if err != nil && !errors.Is(err, postgres.ErrNotTogether) && !errors.Is(ctx.Err(), context.Canceled) {
		suspect()
	}
	return answers, err
}

// atFirst limits the first part of a call. It leaves at least half of the time for the rest.
func atFirst(ctx context.Context, long time.Duration) (context.Context, context.CancelFunc) {
	if end, ok := ctx.Deadline(); ok {
		long = min(long, time.Until(end)/2)
	}
	return context.WithTimeout(ctx, long)
}

// beatsAtOnce is how many ledgers of one server a beat asks concurrently.
const beatsAtOnce = 2

// inTurn calls do for all ledgers, concurrently for each server, but for only a few ledgers of a server at a time. Use
// it for work that every process repeats: each connection plans the statements of each ledger anew, so such work should
// use few connections.
func inTurn(all []*ledger, do func(i int, l *ledger)) {
	var done sync.WaitGroup
	turns := map[*server]chan struct{}{}
	for i, l := range all {
		at, _ := l.whereabouts()
		turn := turns[at]
		if turn == nil {
			turn = make(chan struct{}, beatsAtOnce)
			turns[at] = turn
		}
		done.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			do(i, l)
		})
	}
	done.Wait()
}

// isPinned reports whether the plain tasks of a queue are all stored in one ledger.
func isPinned(queue string) bool { return strings.HasSuffix(queue, PinnedSuffix) }

// PinnedSuffix is the suffix of queues whose tasks are all stored in one ledger, so that their order is exact. Tasks
// that have a key, belong to a workflow or were moved to the queue may be in other ledgers.
const PinnedSuffix = ".pinned"
