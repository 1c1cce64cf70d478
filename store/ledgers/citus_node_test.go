package ledgers_test

import (
	"context"
	"os"
	"testing"

	"github.com/tuskqueue/tusk/store"
)

// A node is added and takes over a ledger. Another node is lost, and its standby takes its place
// at another address. Workers continue, and users' transactions reach all ledgers, as before.
func TestCitusNodesComeAndGo(t *testing.T) {
	c := citusToKill(t)
	ctx := context.Background()
	dsn := c.queue(t, 4)
	s := openCitus(t, dsn) // two on each worker
	table := c.users(t)
	w := worker(t, s)
	var tasks []store.NewTask
	for no := range 4 {
		tasks = append(tasks, keyedIn(s, no, nil))
	}
	add(t, s, tasks...)
	held := claim(t, s, w, 4)
	reach(t, c, s, table, "at first")

	if err := c.addNode(os.Getenv(citusBinEnv)); err != nil {
		t.Fatal(err)
	}
	fresh := openCitus(t, dsn)
	host, port := hostOf(c.dsns[3])
	if _, err := fresh.Move(ctx, host+":"+port, 1); err != nil {
		t.Fatal(err)
	}
	finds := func(task store.NewTask) func() bool {
		return func() bool { // an error until the process has noticed that the ledger is elsewhere
			found, err := s.List(ctx, store.Filter{IDs: []store.ID{task.ID}})
			return err == nil && len(found) == 1 && found[0].State == store.Running
		}
	}
	eventually(t, "the others know where the ledger is", finds(tasks[1]))
	reach(t, c, s, table, "after a move to a new node")

	standby, err := c.servers[1].Standby()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(standby.Stop)
	if err := c.servers[1].Kill(); err != nil {
		t.Fatal(err)
	}
	if err := standby.Exec(ctx, "select pg_promote()"); err != nil {
		t.Fatal(err)
	}
	_, before := hostOf(c.dsns[1])
	_, after := hostOf(standby.DSN)
	_, err = ask(c.dsns[0],
		"select citus_update_node(nodeid, '127.0.0.1', $2::text::int)::text from pg_dist_node where nodeport = $1::text::int",
		before, after)
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		eventually(t, "the standby's ledgers are used", finds(task))
	}
	reach(t, c, s, table, "after a node was lost")
	if _, err := s.Check(ctx); err != nil {
		t.Error(err)
	}
	for i := range held {
		finish(t, s, store.Outcome{Task: &held[i], State: store.Completed, Attempt: 1})
	}
}
