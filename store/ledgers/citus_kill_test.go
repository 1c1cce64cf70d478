package ledgers_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/ledgers"
)

// citusKillsEnv names the number of kills. Default: twelve.
const citusKillsEnv = "TUSK_TEST_CITUS_KILLS"

// killed is a load of users on a cluster whose nodes are killed. They store rows together with
// tasks, and with the ends of tasks.
type killed struct {
	*cluster
	t          *testing.T
	s          *ledgers.Store
	rows, done string // the tables of stored and of completed tasks

	mu           sync.Mutex
	tried, acked []store.ID // tasks that a transaction stored, and those whose commit was acknowledged
}

// Nodes are killed, and so are their processes while they commit. After recovery, a user's row
// exists if and only if its task does, and a task is completed if and only if its row says so.
func TestCitusKills(t *testing.T) {
	c := citusToKill(t)
	k := &killed{cluster: c, t: t, s: openCitus(t, c.queue(t, 4)), rows: c.users(t), done: c.users(t)}
	kills := 12
	if n, err := strconv.Atoi(os.Getenv(citusKillsEnv)); err == nil {
		kills = n
	}
	ctx, stop := context.WithCancel(t.Context())
	var users sync.WaitGroup
	for n := range 6 {
		users.Go(func() { k.eachOn(ctx, n%len(c.dsns), k.store) })
	}
	for n := range 3 {
		users.Go(func() { k.eachOn(ctx, n, k.complete) })
	}
	left := 0
	for n := range kills {
		time.Sleep(time.Duration(200+rand.IntN(1000)) * time.Millisecond)
		node := rand.IntN(len(c.dsns))
		if n%3 == 0 {
			k.killNode(node)
		} else {
			k.killCommit(node)
		}
		left += k.prepared()
	}
	time.Sleep(time.Second)
	stop()
	users.Wait()
	eventually(t, "nothing is prepared any more", func() bool {
		for _, dsn := range c.dsns {
			_, _ = ask(dsn, "select recover_prepared_transactions()::text")
		}
		return k.prepared() == 0
	})
	k.check()
	t.Logf("%d kills left %d transactions prepared; %d of %d tasks were acknowledged", kills, left, len(k.acked),
		len(k.tried))
}

// eachOn does something repeatedly over a connection to a node, whatever happens to the node.
func (k *killed) eachOn(ctx context.Context, node int, do func(ctx context.Context, c *pgx.Conn) error) {
	for ctx.Err() == nil {
		within, cancel := context.WithTimeout(ctx, 20*time.Second)
		if c, err := pgx.Connect(within, k.dsns[node]); err == nil {
			for err == nil && ctx.Err() == nil {
				err = do(within, c)
			}
			c.Close(within)
		}
		cancel()
		time.Sleep(10 * time.Millisecond)
	}
}

// store stores a row and a task together.
func (k *killed) store(ctx context.Context, c *pgx.Conn) error {
	n := newTask(nil)
	n.Key = n.ID.String()
	k.mu.Lock()
	k.tried = append(k.tried, n.ID)
	k.mu.Unlock()
	err := pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
		if err := enqueueTx(k.s, tx, n); err != nil {
			return err
		}
		return insertRow(tx, k.rows, n.ID)
	})
	if err == nil {
		k.mu.Lock()
		k.acked = append(k.acked, n.ID)
		k.mu.Unlock()
	}
	return err
}

// complete completes a task together with a row that says so.
func (k *killed) complete(ctx context.Context, c *pgx.Conn) error {
	w := store.ID(store.NewToken())
	if _, err := k.s.Extend(ctx, store.Beat{Worker: store.Worker{ID: w}, TTL: time.Hour}); err != nil {
		return err
	}
	for {
		tasks, err := k.s.Claim(ctx, store.ClaimRequest{Worker: w, Queues: []string{"q"}, Limit: 1, Token: store.NewToken()})
		if err != nil || len(tasks) == 0 {
			return err
		}
		err = pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
			in, err := k.s.Tx(tx)
			if err != nil {
				return err
			}
			if err := insertRow(tx, k.done, tasks[0].ID); err != nil {
				return err
			}
			lost, err := in.Finish(ctx, []store.Outcome{{Task: &tasks[0], State: store.Completed, Attempt: tasks[0].Attempt}})
			if len(lost) > 0 {
				err = fmt.Errorf("lost %v", lost)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
}

func (k *killed) killNode(node int) {
	if err := k.servers[node].Kill(); err != nil {
		k.t.Fatal(err)
	}
	if err := k.servers[node].Run(); err != nil {
		k.t.Fatal(err)
	}
}

// killCommit kills a process of a node that is committing or, if there is none, any process that
// serves a user. PostgreSQL then ends all others, and recovers.
func (k *killed) killCommit(node int) {
	const text = `select pid::text from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()
		order by (state = 'active' and query ~* '^\s*(commit|prepare)') desc, random()`
	var pids []string
	for range 50 {
		var err error
		if pids, err = ask(k.dsns[node], text); err == nil && len(pids) > 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if len(pids) == 0 {
		return
	}
	pid, err := strconv.Atoi(pids[0])
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGKILL)
	}
	if err != nil {
		k.t.Logf("process %s: %v", pids[0], err) // it has ended
	}
}

// prepared counts the prepared transactions on all nodes, once they answer.
func (k *killed) prepared() (sum int) {
	for _, dsn := range k.dsns {
		eventually(k.t, "a node answers", func() bool {
			names, err := ask(dsn, "select gid from pg_prepared_xacts")
			sum += len(names)
			return err == nil
		})
	}
	return sum
}

// check compares rows with tasks.
func (k *killed) check() {
	ids := func(table string) map[string]bool {
		found, err := ask(k.dsns[0], "select id::text from "+table)
		if err != nil {
			k.t.Fatal(err)
		}
		all := map[string]bool{}
		for _, id := range found {
			all[id] = true
		}
		return all
	}
	rows, done := ids(k.rows), ids(k.done)
	states := map[store.ID]store.State{}
	for part := range slices.Chunk(k.tried, 500) {
		var tasks []store.Task
		eventually(k.t, "all ledgers answer", func() (answered bool) {
			var err error
			tasks, err = k.s.List(context.Background(), store.Filter{IDs: slices.Clone(part), Limit: store.MaxPage})
			return err == nil
		})
		for i := range tasks {
			states[tasks[i].ID] = tasks[i].State
		}
	}
	for _, id := range k.tried {
		if state := states[id]; rows[id.String()] != (state != 0) || done[id.String()] != (state == store.Completed) {
			k.t.Errorf("task %v is %v; its row is there: %v, that of its end: %v", id, state, rows[id.String()],
				done[id.String()])
		}
	}
	for _, id := range k.acked {
		if states[id] == 0 {
			k.t.Errorf("task %v was lost after its commit", id)
		}
	}
	if len(rows) < 10 || len(done) < 10 {
		k.t.Errorf("%d tasks were stored, and %d completed: too few to say anything", len(rows), len(done))
	}
}
