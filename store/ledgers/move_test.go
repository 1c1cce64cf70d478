package ledgers_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/ledgers"
	"github.com/tuskqueue/tusk/store/postgres"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

// load enqueues plain and keyed tasks while a worker runs them.
type load struct {
	t       *testing.T
	s       store.Store
	client  *tusk.Client
	stop    context.CancelFunc
	all     sync.WaitGroup
	mu      sync.Mutex
	ran     map[store.ID]int
	stored  map[store.ID]bool
	refused atomic.Int32 // keyed tasks whose ledger was away
	worst   atomic.Int64 // the slowest enqueue of a plain task
}

func startLoad(t *testing.T, s store.Store) *load {
	t.Helper()
	client, err := tusk.NewClient(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	l := &load{t: t, s: s, client: client, stop: stop, ran: map[store.ID]int{}, stored: map[store.ID]bool{}}
	mux := tusk.NewMux()
	tusk.Handle(mux, func(ctx context.Context, task *tusk.Task[sleep]) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.ran[task.ID]++
		return nil
	})
	w, err := tusk.NewWorker(client, mux, nil)
	if err != nil {
		t.Fatal(err)
	}
	l.all.Go(func() {
		if err := w.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("worker: %v", err)
		}
	})
	l.all.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			l.enqueue(ctx, i)
			time.Sleep(time.Millisecond)
		}
	})
	t.Cleanup(stop)
	return l
}

func (l *load) enqueue(ctx context.Context, i int) {
	o := &tusk.Options{}
	if i%4 == 0 {
		o.Key = fmt.Sprint("key ", i)
	}
	began := time.Now()
	r, err := l.client.Enqueue(context.WithoutCancel(ctx), sleep{}, o)
	switch {
	case err == nil:
		l.mu.Lock()
		l.stored[r.ID] = true
		l.mu.Unlock()
		if o.Key == "" {
			l.worst.Store(max(l.worst.Load(), int64(time.Since(began))))
		}
	case o.Key != "" && errors.Is(err, store.ErrUnavailable):
		l.refused.Add(1)
	default:
		l.t.Errorf("a task was not stored (key %q): %v", o.Key, err)
	}
}

// end waits until all stored tasks have run, and fails the test unless each has run once.
func (l *load) end() {
	l.t.Helper()
	l.mu.Lock()
	far := len(l.stored) + 200 // some more tasks first
	l.mu.Unlock()
	eventually(l.t, "the load goes on", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.stored) >= far
	})
	eventually(l.t, "all tasks have run", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		for id := range l.stored {
			if l.ran[id] == 0 {
				return len(l.stored) > 1_000_000
			}
		}
		l.stop()
		return true
	})
	l.all.Wait()
	for id, times := range l.ran {
		if times != 1 {
			l.t.Errorf("task %v ran %d times", id, times)
		}
	}
	l.t.Logf("%d tasks, %d keyed ones refused, the slowest plain enqueue took %v",
		len(l.stored), l.refused.Load(), time.Duration(l.worst.Load()))
}

func places(t *testing.T, s *ledgers.Store) string {
	t.Helper()
	all, err := s.Places(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, p := range all {
		lines = append(lines, fmt.Sprintf("%s %s", p.Schema, p.State))
	}
	return strings.Join(lines, ", ")
}

// A plain queue grows into four ledgers, and half of them move to a standby that is promoted,
// while the queue is in use.
func TestAPlainQueueGrowsIntoLedgersOnTwoServers(t *testing.T) {
	all, dsns := servers(t, 1)
	ctx := context.Background()
	plain, err := postgres.Open(ctx, dsns[0])
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if _, err := plain.Migrate(ctx, -1); err != nil {
		t.Fatal(err)
	}
	held := add(t, plain, newTask(func(n *store.NewTask) { n.Key, n.Delay = "held", time.Hour }))[0]
	standby, err := all[0].Standby()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(standby.Stop)

	s, operator := open(t, all[0].DSN, standby.DSN), open(t, all[0].DSN, standby.DSN)
	l := startLoad(t, s)
	if err := operator.Divide(4); err != nil {
		t.Fatal(err)
	}
	// The new ledgers are made on the servers of the URL, except on standbys.
	if _, err := operator.Migrate(ctx, -1); err != nil {
		t.Fatal(err)
	}
	want := "tusk open, tusk_1_of_4_keys_1 open, tusk_2_of_4_keys_1 open, tusk_3_of_4_keys_1 open"
	if got := places(t, operator); got != want {
		t.Fatalf("%s, want %s", got, want)
	}
	again := newTask(func(n *store.NewTask) { n.Key = "held" })
	if r := add(t, operator, again)[0]; r.Result != store.Skipped || r.ID != held.ID {
		t.Errorf("a key that was held before: %+v", r)
	}
	stepped := stepsOf(t, operator)
	moved, err := operator.Move(ctx, operatorName(standby), 2, 3)
	if err != nil {
		t.Fatal(err)
	}
	name := operatorName(standby) + "/postgres"
	stepped("ledger 2: waiting for transactions to end", "ledger 3: waiting for transactions to end",
		"waiting until "+name+" has replayed all writes", "promoting "+name)
	t.Logf("%v %s: they stood still for %v", moved.Numbers, moved.How, moved.Stood)
	if moved.How != "promoted" {
		t.Errorf("moved how: %s", moved.How)
	}
	l.end()
	warnings, err := operator.Check(ctx)
	if err != nil || !strings.Contains(strings.Join(warnings, " "), "drop-copies") {
		t.Errorf("check: %q, %v", warnings, err)
	}
	dropped, err := operator.DropCopies(ctx, false)
	if err != nil || len(dropped) != 4 { // two here, two there
		t.Errorf("dropped %+v, %v", dropped, err)
	}
	if warnings, err := operator.Check(ctx); err != nil || strings.Contains(strings.Join(warnings, " "), "drop-copies") {
		t.Errorf("check: %q, %v", warnings, err)
	}
	if _, err := open(t, all[0].DSN, standby.DSN).Count(ctx); err != nil {
		t.Errorf("a process that starts now: %v", err)
	}
}

func operatorName(s *pgtest.Server) string {
	_, after, _ := strings.Cut(s.DSN, "@")
	host, _, _ := strings.Cut(after, "/")
	return host
}

// A ledger is copied to another server with all its contents: the leases of a worker that
// continues, keys, needs, a schedule's record, history.
func TestALedgerIsCopiedToAnotherServer(t *testing.T) {
	all, dsns := servers(t, 2)
	ctx := context.Background()
	if err := divide(1, dsns[0]); err != nil {
		t.Fatal(err)
	}
	s, operator := open(t, dsns...), open(t, dsns...)
	w := worker(t, s)
	var tasks []store.NewTask
	for range 300 {
		tasks = append(tasks, newTask(nil))
	}
	add(t, s, tasks...)
	running := claim(t, s, w, 50)
	parent := add(t, s, newTask(func(n *store.NewTask) { n.Queue, n.Key = "other", "k" }))[0].ID
	child := add(t, s, newTask(needs(store.CancelOnFailure, parent)))[0].ID
	record := store.Record{Kind: "k", Name: "n", Body: []byte("{}")}
	if _, _, err := s.PutRecord(ctx, store.PutRecord{Record: record}); err != nil {
		t.Fatal(err)
	}
	before, err := s.Count(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := all[0].Exec(ctx, "create schema tusk_0_of_1_fork"); err != nil { // not a ledger
		t.Fatal(err)
	}
	stepped := stepsOf(t, operator)
	moved, err := operator.Move(ctx, operator.ServerName(1), 0)
	if err != nil {
		t.Fatal(err)
	}
	stepped("ledger 0: using up transaction ids of "+operator.ServerName(1), "ledger 0: waiting for transactions to end",
		"ledger 0: copying it to "+operator.ServerName(1))
	if err := all[1].Exec(ctx, "create schema tusk_0_of_1_fork"); err != nil {
		t.Errorf("a schema that is not the ledger's was copied: %v", err)
	}
	t.Logf("it stood still for %v", moved.Stood)
	if moved.How != "copied" {
		t.Errorf("moved how: %s", moved.How)
	}
	eventually(t, "it is found on the other server", func() bool {
		after, err := s.Count(ctx)
		return err == nil && fmt.Sprint(forgetAge(after)) == fmt.Sprint(forgetAge(before))
	})
	for i := range running {
		finish(t, s, store.Outcome{Task: &running[i], State: store.Completed, Attempt: 1})
	}
	again := newTask(func(n *store.NewTask) { n.Queue, n.Key = "other", "k" })
	if r := add(t, s, again)[0]; r.Result != store.Skipped || r.ID != parent {
		t.Errorf("the key was lost: %+v", r)
	}
	r := store.ClaimRequest{Worker: w, Queues: []string{"other"}, Limit: 1, Token: store.NewToken()}
	got, err := s.Claim(ctx, r)
	if err != nil || len(got) != 1 || got[0].ID != parent {
		t.Fatalf("claimed %+v, %v", got, err)
	}
	finish(t, s, store.Outcome{Task: &got[0], State: store.Completed, Attempt: 1})
	if state := stateOf(t, s, child); state != store.Available {
		t.Errorf("the child is %v", state)
	}
	if rest := claim(t, s, w, 1000); len(rest) != 251 {
		t.Errorf("claimed %d of the 251 that are left", len(rest))
	}
	if dropped, err := operator.DropCopies(ctx, false); err != nil || len(dropped) != 1 {
		t.Errorf("dropped %+v, %v", dropped, err)
	}
}

func forgetAge(counts []store.Count) []store.Count {
	for i := range counts {
		counts[i].Oldest = 0
	}
	return counts
}

func TestAFencedLedgerIsAwayUntilItIsOpened(t *testing.T) {
	_, dsns := servers(t, 1)
	ctx := context.Background()
	if err := divide(2, dsns...); err != nil {
		t.Fatal(err)
	}
	s, operator := open(t, dsns...), open(t, dsns...)
	l := startLoad(t, s)
	for range 3 {
		if err := operator.Fence(ctx, 1); err != nil {
			t.Fatal(err)
		}
		if _, err := operator.Check(ctx); err == nil || !strings.Contains(err.Error(), "tusk ledgers open 1") {
			t.Errorf("check: %v", err)
		}
		if err := operator.Fence(ctx, 1); err != nil { // changes nothing
			t.Errorf("it is fenced: %v", err)
		}
		if dropped, err := operator.DropCopies(ctx, false); err != nil || len(dropped) > 0 {
			t.Errorf("dropped %+v, %v", dropped, err)
		}
		if err := operator.Open(ctx, "", 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := operator.Open(ctx, "", 1); err != nil { // changes nothing
		t.Errorf("it is open: %v", err)
	}
	if err := operator.Fence(ctx, 2); err == nil || !strings.Contains(err.Error(), "0 to 1") {
		t.Errorf("a ledger that there is not: %v", err)
	}
	all, err := operator.Places(ctx)
	if err != nil || len(all) != 2 || all[1].Epoch != 6 || all[1].State != "open" {
		t.Errorf("%+v, %v", all, err)
	}
	l.end()
}

// A server that comes back with ledgers that have moved away since is ignored.
func TestAnOldCopyIsNotUsed(t *testing.T) {
	all, dsns := servers(t, 2)
	ctx := context.Background()
	if err := divide(2, dsns...); err != nil {
		t.Fatal(err)
	}
	s := open(t, dsns...)
	if err := s.Fence(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if err := s.Open(ctx, "", 1); err != nil {
		t.Fatal(err)
	}
	if err := all[0].Exec(ctx, "create schema tusk_1_of_2"); err != nil { // of the epoch before
		t.Fatal(err)
	}
	late := open(t, dsns...)
	if _, err := late.Count(ctx); err != nil {
		t.Error(err)
	}
	_, in := beginFor(t, late, dsns[0])
	_, err := in.Enqueue(ctx, []store.NewTask{keyedInto(late, 1, nil)})
	if !errors.Is(err, store.ErrUnsupported) || !strings.Contains(err.Error(), "not in the transaction's database") {
		t.Errorf("a transaction beside the copy: %v", err)
	}
	warnings, err := late.Check(ctx)
	if err != nil || !strings.Contains(strings.Join(warnings, " "), "old copy of the ledger tusk_1_of_2") {
		t.Errorf("%q, %v", warnings, err)
	}
}

// A worker with one slot makes an exchange while its ledger is fenced. Both halves of the call say that it is away.
func TestAnExchangeWithAFencedLedger(t *testing.T) {
	dsn := three.DSN(t)
	s, other := open(t, dsn), open(t, dsn)
	ctx := context.Background()
	w := worker(t, s)
	add(t, s, keyedInto(s, 1, nil))
	task := claim(t, s, w, 1)[0]
	if err := other.Fence(ctx, 1); err != nil {
		t.Fatal(err)
	}
	r := store.ClaimRequest{Worker: w, Queues: []string{"q"}, Limit: 1, Token: store.NewToken()}
	x := s.Exchange(ctx, store.Outcome{Task: &task, State: store.Completed, Attempt: 1}, r)
	if !errors.Is(x.FinishErr, store.ErrUnavailable) {
		t.Errorf("the outcome: %v", x.FinishErr)
	}
	if x.ClaimErr != nil && !errors.Is(x.ClaimErr, store.ErrUnavailable) {
		t.Errorf("the claim: %v", x.ClaimErr)
	}
}

// An outcome brings a task with a key of another ledger.
func TestAnExchangeBringsATaskIntoItsOwnLedger(t *testing.T) {
	s := open(t, three.DSN(t))
	w := worker(t, s)
	add(t, s, newTask(nil))
	task := claim(t, s, w, 1)[0]
	no := (ledgers.Where(t, s, task.ID) + 1) % 3
	child := keyedInto(s, no, func(n *store.NewTask) { n.Queue = "children" })
	r := store.ClaimRequest{Worker: w, Queues: []string{"q"}, Limit: 1, Token: store.NewToken()}
	x := s.Exchange(t.Context(), store.Outcome{Task: &task, State: store.Completed, Attempt: 1,
		Then: []store.NewTask{child}}, r)
	if x.FinishErr != nil || x.ClaimErr != nil || x.Lost {
		t.Fatalf("%+v", x)
	}
	if got := ledgers.Where(t, s, child.ID); got != no {
		t.Errorf("it is in ledger %d, want %d", got, no)
	}
}
