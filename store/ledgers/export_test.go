package ledgers

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// PinAll keeps each queue in one ledger.
func (s *Store) PinAll() { s.pinned = func(string) bool { return true } }

// Pool returns the pool of the first server.
func Pool(s *Store) *pgxpool.Pool { return s.servers()[0].pool }

// PlaceOf returns the ledger that a task has to live in, or -1 if it may live in any.
func PlaceOf(s *Store, n *store.NewTask) int {
	if no, fixed := s.fixed(n, len(*s.all.Load())); fixed {
		return no
	}
	return -1
}

// Where returns the ledger that has a task.
func Where(t *testing.T, s *Store, id store.ID) int {
	t.Helper()
	found, err := s.whereAre(context.Background(), *s.all.Load(), []store.ID{id})
	if err != nil || len(found) != 1 {
		t.Fatalf("%v is nowhere, %v", id, err)
	}
	return found[id].no
}

// Leave signs a worker off in one ledger only.
func Leave(ctx context.Context, s *Store, no int, worker store.ID) error {
	_, err := ask(ctx, (*s.all.Load())[no], func(ctx context.Context, e *postgres.Store) ([]store.Stop, error) {
		return e.Extend(ctx, store.Beat{Worker: store.Worker{ID: worker}})
	})
	return err
}

// ServerName returns the name of a server for people.
func (s *Store) ServerName(i int) string { return s.servers()[i].name }

// Over returns a transaction over a cluster's functions, in any database that has them.
func Over(e *postgres.Store, tx pgx.Tx) store.Tx { return e.TxOver(&delegated{driverCaller{tx}, 0}) }

// CitusFunctions returns the statements that create the functions that are called on other nodes.
func CitusFunctions() (all []string) {
	for _, text := range strings.Split(citusText, "\n\n") {
		if strings.Contains(text, "create schema") || strings.Contains(text, "create or replace function") {
			all = append(all, text)
		}
	}
	return all
}

// Doubt enqueues a task whose ledger falls silent, after it has stored the task or before.
func Doubt(ctx context.Context, s *Store, no int, stored bool) (store.ID, error) {
	n := store.NewTask{ID: store.ID(store.NewToken()), Kind: "k", Queue: "q", Args: []byte(`{}`)}
	all := *s.all.Load()
	if stored {
		if _, err := enqueueAt(ctx, all[no], []store.NewTask{n}); err != nil {
			return n.ID, err
		}
	}
	return n.ID, writeDoubt(ctx, all, all[no], []store.NewTask{n}, store.ErrUnavailable)
}

// EnqueueAfter stores tasks of several ledgers. It calls do after the ledgers have heard of the
// tasks that they will need.
func EnqueueAfter(ctx context.Context, s *Store, tasks []store.NewTask, do func() error) error {
	all, err := s.ledgers(ctx)
	if err != nil {
		return err
	}
	places, err := s.placesOf(ctx, all, tasks)
	if err != nil {
		return err
	}
	if err := errors.Join(s.hear(ctx, all, places.far), do()); err != nil {
		return err
	}
	_, _, err = enqueueApart(ctx, all, places, tasks, (*postgres.Store).Enqueue)
	return err
}

// RestoreUnsent restores tasks except those in letters, and returns a function that delivers these.
func RestoreUnsent(
	ctx context.Context, s *Store, note store.Record, tasks []store.Task,
) (send func() error, err error) {
	all, err := s.ledgers(ctx)
	if err != nil {
		return nil, err
	}
	w, err := s.writeBack(ctx, all, note, tasks)
	return func() (failed error) {
		for _, b := range w.mail {
			failed = errors.Join(failed, s.sendBack(ctx, all, all[0], b))
		}
		return failed
	}, err
}

// ComeApart makes s expect that transactions commit on one server after the other, as in a cluster.
func (s *Store) ComeApart() { s.comesApart = true }

// EnqueueInParts stores tasks of several ledgers as a cluster does in one user's transaction: each
// ledger's part in a transaction on its own server. It returns the transactions by ledger.
func EnqueueInParts(ctx context.Context, s *Store, tasks []store.NewTask) (map[int]pgx.Tx, error) {
	all, err := s.ledgers(ctx)
	if err != nil {
		return nil, err
	}
	places, err := s.placesOf(ctx, all, tasks)
	if err != nil {
		return nil, err
	}
	if err := s.hear(ctx, all, places.far); err != nil {
		return nil, err
	}
	parts := map[int]pgx.Tx{}
	for i, no := range places.at {
		engine, _, err := all[no].present()
		if err == nil && parts[no] == nil {
			at, _ := all[no].whereabouts()
			parts[no], err = at.pool.Begin(ctx)
		}
		if err != nil {
			return parts, err
		}
		in, err := engine.Tx(parts[no])
		if err != nil {
			return parts, err
		}
		if _, err := in.Enqueue(ctx, tasks[i:i+1]); err != nil {
			return parts, err
		}
	}
	return parts, nil
}

// Deafen makes s believe that all ledgers are empty, and that it hears of tasks in them.
func Deafen(s *Store) {
	for _, l := range *s.all.Load() {
		s.turns.listen(l.no, true)
		s.turns.hot[l.no].Store(false)
	}
	s.turns.cold.Store(s.turns.clock().UnixNano())
}

// WriteLetters stores tasks in a ledger, those with keys of other ledgers in letters, like a process that dies before
// it delivers them.
func WriteLetters(ctx context.Context, s *Store, no int, tasks ...store.NewTask) error {
	all := *s.all.Load()
	tasks, sent, err := s.wrapUp(len(all), no, tasks)
	if err != nil {
		return err
	}
	heard := make([][]postgres.Elsewhere, len(all))
	if heard[no], err = heardBefore(ctx, all, no, tasks, nil, sent, s.parentsOf); err != nil {
		return err
	}
	if err := s.hear(ctx, all, heard); err != nil {
		return err
	}
	_, err = enqueueAt(ctx, all[no], tasks)
	return err
}

// SmallPages makes looks deliver two pages of four letters until the test ends.
func SmallPages(cleanup func(func())) {
	pages, page := mostPages, lettersPage
	mostPages, lettersPage = 2, 4
	cleanup(func() { mostPages, lettersPage = pages, page })
}

// OneNeed makes looks ask for one needed task of each ledger at a time until the test ends.
func OneNeed(cleanup func(func())) {
	page := farPage
	farPage = 1
	cleanup(func() { farPage = page })
}

// Lose makes a ledger away until it is probed.
func Lose(s *Store, no int) { (*s.all.Load())[no].lost(store.ErrUnavailable) }

// Break makes s believe that a connection to a ledger broke.
func Break(s *Store, no int) { (*s.all.Load())[no].doubt() }

// Meet makes a server known to an open store.
func Meet(ctx context.Context, s *Store, dsn string) error {
	pool, _, err := postgres.Connect(ctx, dsn)
	if err == nil {
		s.add(pool, nil)
	}
	return err
}

// CountIn counts tasks in a ledger.
func CountIn(ctx context.Context, s *Store, no int, f store.Filter) (int, error) {
	found, err := ask(ctx, (*s.all.Load())[no], func(ctx context.Context, e *postgres.Store) ([]store.Task, error) {
		return e.List(ctx, f)
	})
	return len(found), err
}

// Looks returns how often s has looked for ledgers.
func Looks(s *Store) int64 { return s.begun.Load() }

// HoldLooks makes looks wait until resume is called.
func HoldLooks(s *Store) (resume func()) {
	s.mu.Lock()
	return s.mu.Unlock
}

const SettlesIn = settlesIn

// Hidden returns a statement without the password in it.
func Hidden(statement string) string { return hidden(statement) }

// MeetNodes reads a cluster's list of nodes, and returns how many servers are known then.
func MeetNodes(ctx context.Context, s *Store) (int, error) {
	err := s.net.meet(ctx, s)
	return len(s.servers()), err
}

// IsOver reports whether what was in flight at the first look is known to have ended at the last. A look is the ids of
// the oldest transaction that has not ended and of the next one to begin.
func IsOver(looks ...[2]int64) (over bool) {
	var f far
	var letter store.ID
	f.firstLook(letter)
	for _, l := range looks {
		over = f.over(letter, l[0], l[1])
	}
	return over
}

// FenceLater looks at all servers, and returns a function that fences a ledger by what was seen.
func FenceLater(ctx context.Context, s *Store, no int) (fence func() error, err error) {
	seen, err := s.look(ctx)
	return func() error {
		_, err := seen.on[no][0].fence(ctx)
		return err
	}, err
}

// FenceAndFail fences ledgers, calls do, and opens the ledgers again like a call that has failed.
func FenceAndFail(ctx context.Context, s *Store, do func(), numbers ...int) error {
	seen, err := s.look(ctx)
	var fenced []schema
	for _, no := range numbers {
		if err == nil {
			var one schema
			one, err = seen.on[no][0].fence(ctx)
			fenced = append(fenced, one)
		}
	}
	if err != nil {
		return err
	}
	do()
	return s.unfence(ctx, fenced)
}

// IsPrompt reports whether a ledger's last answer to a claim came soon.
func IsPrompt(s *Store, no int) bool { return (*s.all.Load())[no].prompt.Load() }

// IsProbed reports whether a ledger is being probed.
func IsProbed(s *Store, no int) bool { return (*s.all.Load())[no].probed() }

// Conns returns the number of open connections to a server.
func Conns(s *Store, server int) int32 { return s.servers()[server].pool.Stat().TotalConns() }

// Listens reports whether a call of Listen is in progress.
func Listens(s *Store) bool {
	s.listeners.mu.Lock()
	defer s.listeners.mu.Unlock()
	return len(s.listeners.all) > 0
}

// Owes reports whether a server has late calls.
func Owes(s *Store, server int) bool {
	d := &s.servers()[server].debt
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.calls) > 0
}

// EpochLock is the advisory lock of commands that change schemas.
const EpochLock = epochLock

// ShortLocks makes commands wait for locks, and undo their steps, only briefly until the test ends.
func ShortLocks(cleanup func(func())) {
	within, turn, back := lockedWithin, turnWithin, backWithin
	lockedWithin, turnWithin, backWithin = 200*time.Millisecond, 500*time.Millisecond, 800*time.Millisecond
	cleanup(func() { lockedWithin, turnWithin, backWithin = within, turn, back })
}

// Hears reports whether notifications of a ledger have arrived.
func Hears(s *Store, no int) bool { return s.turns.told[no].Load() }
