package ledgers_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/ledgers"
)

// A node is split with a clone, as the documentation says: its ledgers are fenced, Citus promotes the clone and
// gives it half of the shards, and each ledger is opened on one of the two. Leases stay valid, and nothing is lost.
func TestCitusNodeIsSplitByItsClone(t *testing.T) {
	c := citusToKill(t)
	ctx := context.Background()
	dsn := c.queue(t, 4)
	s := openCitus(t, dsn)
	table := c.users(t)
	w := worker(t, s)
	var tasks []store.NewTask
	for no := range 4 {
		tasks = append(tasks, keyedIn(s, no, nil))
	}
	add(t, s, tasks...)
	held := claim(t, s, w, 4)
	reach(t, c, s, table, "at first")

	host, port := hostOf(c.dsns[1])
	numbers := on(t, s, host+":"+port)
	if len(numbers) != 2 {
		t.Fatalf("%s:%s has the ledgers %v, want two", host, port, numbers)
	}
	clone, err := c.servers[1].Standby()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(clone.Stop)
	cloneHost, clonePort := hostOf(clone.DSN)
	id, err := ask(c.dsns[0], "select citus_add_clone_node($1::text, $2::text::int, $3::text, $4::text::int)::text",
		cloneHost, clonePort, host, port)
	if err != nil {
		t.Fatal(err)
	}
	operator, begun := openCitus(t, dsn), time.Now()
	if err := operator.Fence(ctx, numbers...); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(c.dsns[0], "select citus_promote_clone_and_rebalance($1::text::int)::text", id[0]); err != nil {
		t.Fatal(err)
	}
	after := openCitus(t, dsn) // a process that knows the new node
	if err := after.Open(ctx, host+":"+port, numbers[0]); err != nil {
		t.Fatal(err)
	}
	if err := after.Open(ctx, cloneHost+":"+clonePort, numbers[1]); err != nil {
		t.Fatal(err)
	}
	t.Logf("the node's ledgers stood still for %v", time.Since(begun))
	dropped, err := after.DropCopies(ctx, false)
	if err != nil || len(dropped) != 2 {
		t.Errorf("dropped %v, %v; want a copy of each ledger", dropped, err)
	}
	for i, at := range []string{host + ":" + port, cloneHost + ":" + clonePort} {
		if got := on(t, after, at); !slices.Equal(got, numbers[i:i+1]) {
			t.Errorf("%s has the ledgers %v, want %d", at, got, numbers[i])
		}
	}
	eventually(t, "who worked meanwhile knows where the ledgers are", func() bool {
		found, err := s.List(ctx, store.Filter{IDs: []store.ID{tasks[numbers[0]].ID, tasks[numbers[1]].ID}})
		return err == nil && len(found) == 2
	})
	reach(t, c, s, table, "after the split")
	for i := range held {
		finish(t, s, store.Outcome{Task: &held[i], State: store.Completed, Attempt: 1})
	}
	for no, task := range tasks {
		if got := stateOf(t, s, task.ID); got != store.Completed {
			t.Errorf("the task of ledger %d is %v", no, got)
		}
	}
	if _, err := s.Check(ctx); err != nil {
		t.Error(err)
	}
}

// on lists the ledgers that are open on a node.
func on(t *testing.T, s *ledgers.Store, node string) (numbers []int) {
	t.Helper()
	all, err := s.Places(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if p.State == "open" && strings.HasPrefix(p.Server, node+"/") {
			numbers = append(numbers, p.No)
		}
	}
	return numbers
}

// reach stores a task in each of four ledgers, and a row on a worker, in a user's transaction on the coordinator.
func reach(t *testing.T, c *cluster, s *ledgers.Store, table, when string) {
	t.Helper()
	for no := range 4 {
		task, row := keyedIn(s, no, func(n *store.NewTask) { n.Queue = "later" }), c.idOn(t, table, 2)
		eventually(t, fmt.Sprintf("%s, a transaction reaches ledger %d", when, no), func() bool {
			_, err := userTx(t, c.dsns[0], func(tx pgx.Tx) error {
				if err := enqueueTx(s, tx, task); err != nil {
					return err
				}
				return insertRow(tx, table, row)
			})
			if err != nil {
				t.Logf("%s: %v", when, err)
			}
			return err == nil
		})
		if got := stateOf(t, s, task.ID); got != store.Available || !c.has(t, table, row) {
			t.Errorf("%s: a task of ledger %d is %v", when, no, got)
		}
	}
}
