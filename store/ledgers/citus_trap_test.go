package ledgers_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/ledgers"
)

// users makes a distributed table for users' rows. It returns its name.
func (c *cluster) users(t testing.TB) string {
	t.Helper()
	table := fmt.Sprintf("tusk_test_rows_%d", citusQueues.Add(1))
	for _, text := range []string{
		"drop table if exists " + table, "create table " + table + " (id uuid primary key)",
		"select create_distributed_table('" + table + "', 'id')::text",
	} {
		if _, err := ask(c.dsns[0], text); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _, _ = ask(c.dsns[0], "drop table "+table) })
	return table
}

// idOn returns an id whose row is stored on a worker, 1 or 2.
func (c *cluster) idOn(t *testing.T, table string, worker int) store.ID {
	t.Helper()
	_, port := hostOf(c.dsns[worker])
	for range 1000 {
		id := tusk.NewID()
		on, err := ask(c.dsns[0], `select n.nodeport::text from pg_dist_placement p join pg_dist_node n using (groupid)
			where p.shardid = get_shard_id_for_distribution_column($1::text::regclass, $2::text::uuid)`, table, id.String())
		if err != nil {
			t.Fatal(err)
		}
		if on[0] == port {
			return id
		}
	}
	t.Fatalf("%s has no shard on worker %d", table, worker)
	return store.ID{}
}

// keyedIn makes a task that lives in a ledger.
func keyedIn(s *ledgers.Store, no int, change func(*store.NewTask)) store.NewTask {
	for {
		n := newTask(change)
		if n.Key = n.ID.String(); ledgers.PlaceOf(s, &n) == no {
			return n
		}
	}
}

var errUndo = errors.New("undo")

// userTx runs a user's transaction on a node. said is what the node sent to the others.
func userTx(t *testing.T, dsn string, do func(tx pgx.Tx) error) (said []string, err error) {
	t.Helper()
	ctx := context.Background()
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.RuntimeParams["citus.log_remote_commands"] = "on"
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if text, is := strings.CutPrefix(n.Message, "issuing "); is {
			said = append(said, text)
		}
	}
	c, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	err = pgx.BeginFunc(ctx, c, do)
	return said, err
}

// enqueueTx enqueues in a user's transaction.
func enqueueTx(s *ledgers.Store, tx any, tasks ...store.NewTask) error {
	in, err := s.Tx(tx)
	if err == nil {
		_, err = in.Enqueue(context.Background(), tasks)
	}
	return err
}

func insertRow(tx pgx.Tx, table string, id store.ID) error {
	_, err := tx.Exec(context.Background(), "insert into "+table+" values ($1)", id.String())
	return err
}

// has reports whether a user's row exists.
func (c *cluster) has(t *testing.T, table string, id store.ID) bool {
	t.Helper()
	found, err := ask(c.dsns[0], "select id::text from "+table+" where id = $1::text::uuid", id.String())
	if err != nil {
		t.Fatal(err)
	}
	return len(found) > 0
}

// A transaction that begins on any node, with a task of any ledger and rows on any nodes, commits
// as a whole or not at all. Citus does not know of ledgers. If a transaction writes on more than
// one node, Citus has to prepare all.
func TestCitusTransactionsAreWhole(t *testing.T) {
	c := citus(t)
	s := openCitus(t, c.queue(t, 4))
	table := c.users(t)
	places, err := s.Places(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for node, dsn := range c.dsns {
		for no := range 4 {
			for _, on := range [][]int{nil, {1}, {2}, {1, 2}} {
				for _, undo := range []bool{false, true} {
					name := fmt.Sprintf("begun on node %d, ledger %d, rows on %v, undone %v", node, no, on, undo)
					task := keyedIn(s, no, nil)
					var rows []store.ID
					for _, worker := range on {
						rows = append(rows, c.idOn(t, table, worker))
					}
					said, err := userTx(t, dsn, func(tx pgx.Tx) error {
						err := enqueueTx(s, tx, task)
						for _, id := range rows {
							err = errors.Join(err, insertRow(tx, table, id))
						}
						if err == nil && undo {
							err = errUndo
						}
						return err
					})
					if undo != errors.Is(err, errUndo) || !undo && err != nil {
						t.Fatalf("%s: %v", name, err)
					}
					if (stateOf(t, s, task.ID) == 0) != undo {
						t.Errorf("%s: the task is %v", name, stateOf(t, s, task.ID))
					}
					for _, id := range rows {
						if c.has(t, table, id) == undo {
							t.Errorf("%s: a row is there: %v", name, !undo)
						}
					}
					written := map[string]bool{places[no].Server: true}
					for _, worker := range on {
						host, port := hostOf(c.dsns[worker])
						for _, p := range places {
							if strings.HasPrefix(p.Server, host+":"+port+"/") {
								written[p.Server] = true
							}
						}
					}
					if all := strings.Join(said, "; "); !undo && len(written) > 1 &&
						(!strings.Contains(all, "PREPARE TRANSACTION") || strings.Contains(all, "COMMIT;")) {
						t.Errorf("%s: committed one by one: %s", name, all)
					}
				}
			}
		}
	}
}

// One transaction stores tasks with keys and tasks of workflows that need each other across nodes,
// and another one ends some of them.
func TestCitusTransactionsWithNeedsAndEnds(t *testing.T) {
	c := citus(t)
	dsn := c.queue(t, 4)
	s, other := openCitus(t, dsn), openCitus(t, dsn)
	term, w := lead(t, s), worker(t, s)
	for node := range c.dsns {
		for _, undo := range []bool{true, false} {
			queue := func(n *store.NewTask) { n.Queue = "children" }
			var parents, children []store.NewTask
			for no := range 4 {
				parents = append(parents, keyedIn(s, no, nil))
			}
			for no := range 4 {
				children = append(children, keyedIn(s, no, func(n *store.NewTask) {
					queue(n)
					needs(store.CancelOnFailure, parents[0].ID, parents[1].ID, parents[2].ID, parents[3].ID)(n)
				}))
			}
			first := newTask(func(n *store.NewTask) { n.Workflow = tusk.NewID(); queue(n) })
			children = append(children, newTask(func(n *store.NewTask) {
				n.Workflow = first.Workflow
				queue(n)
				needs(store.CancelOnFailure, first.ID, parents[3].ID)(n)
			}), first)
			all := append(parents, first)
			all = append(all, children[:5]...)
			in := func(do func(tx store.Tx) error) {
				t.Helper()
				_, err := userTx(t, c.dsns[node], func(tx pgx.Tx) error {
					in, err := s.Tx(tx)
					if err == nil {
						err = do(in)
					}
					if err == nil && undo {
						err = errUndo
					}
					return err
				})
				if undo != errors.Is(err, errUndo) || !undo && err != nil {
					t.Fatalf("node %d: %v", node, err)
				}
			}
			enqueue := func(tx store.Tx) error { _, err := tx.Enqueue(t.Context(), all); return err }
			in(enqueue)
			if undo {
				for _, n := range all {
					if got := stateOf(t, s, n.ID); got != 0 {
						t.Fatalf("node %d: after a rollback a task is %v", node, got)
					}
				}
				undo = false
				in(enqueue)
				undo = true
			}
			if _, err := s.Admit(t.Context(), term, 100); err != nil {
				t.Fatal(err)
			}
			for _, child := range children[:5] {
				if got := stateOf(t, s, child.ID); got != store.Pending {
					t.Fatalf("node %d: a child is %v", node, got)
				}
			}
			claimed := claim(t, s, w, 4)
			if len(claimed) != 4 {
				t.Fatalf("node %d: claimed %d of 4", node, len(claimed))
			}
			var outcomes []store.Outcome
			var brought []store.ID
			for i := range claimed {
				n := newTask(func(n *store.NewTask) { n.Queue = "brought" })
				if i%2 == 0 {
					n.Key = n.ID.String()
				}
				brought = append(brought, n.ID)
				outcomes = append(outcomes, store.Outcome{Task: &claimed[i], State: store.Completed, Attempt: 1,
					Then: []store.NewTask{n}})
			}
			in(func(tx store.Tx) error {
				lost, err := tx.Finish(t.Context(), outcomes)
				if len(lost) > 0 {
					err = fmt.Errorf("lost %v", lost)
				}
				return err
			})
			if undo {
				for _, task := range claimed {
					if got := stateOf(t, s, task.ID); got != store.Running {
						t.Fatalf("node %d: after a rollback a task is %v", node, got)
					}
				}
				undo = false
				// Remove the ledgers: a process that has not claimed the tasks does not know them.
				for i := range claimed {
					claimed[i].Piece = 0
					outcomes[i].Then = nil
				}
				brought = nil
				_, err := userTx(t, c.dsns[node], func(tx pgx.Tx) error {
					in, err := other.Tx(tx)
					if err != nil {
						return err
					}
					lost, err := in.Finish(t.Context(), outcomes)
					if len(lost) > 0 {
						err = fmt.Errorf("lost %v", lost)
					}
					return err
				})
				if err != nil {
					t.Fatalf("node %d: %v", node, err)
				}
			}
			rest := claimQueue(t, s, w, "children")
			if rest != 1 {
				t.Fatalf("node %d: %d tasks of the workflow could be claimed at first", node, rest)
			}
			for _, child := range children[:4] {
				eventually(t, fmt.Sprintf("node %d: a child is available", node), func() bool {
					if _, err := s.Admit(t.Context(), term, 100); err != nil {
						t.Fatal(err)
					}
					state := stateOf(t, s, child.ID)
					return state == store.Available || state == store.Running
				})
			}
			for _, id := range brought {
				eventually(t, fmt.Sprintf("node %d: a task that an end brought is there", node), func() bool {
					if _, err := s.Admit(t.Context(), term, 100); err != nil {
						t.Fatal(err)
					}
					return stateOf(t, s, id) == store.Available
				})
			}
			for claimQueue(t, s, w, "children") > 0 {
			}
		}
	}
}

// claimQueue claims a task of a queue and completes it. It returns how many there were.
func claimQueue(t *testing.T, s *ledgers.Store, w store.ID, queue string) int {
	t.Helper()
	r := store.ClaimRequest{Worker: w, Queues: []string{queue}, Limit: 1, Token: store.NewToken()}
	tasks, err := s.Claim(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	for i := range tasks {
		finish(t, s, store.Outcome{Task: &tasks[i], State: store.Completed, Attempt: tasks[i].Attempt})
	}
	return len(tasks)
}

// A rollback to a savepoint undoes what came after it on all nodes, and keeps what came before. Citus
// still prepares all nodes.
func TestCitusSavepoints(t *testing.T) {
	c := citus(t)
	s := openCitus(t, c.queue(t, 4))
	table := c.users(t)
	for node, dsn := range c.dsns {
		for no := range 4 {
			kept, undone, last := keyedIn(s, no, nil), keyedIn(s, (no+2)%4, nil), keyedIn(s, no, nil)
			row := map[store.ID]store.ID{}
			for i, id := range []store.ID{kept.ID, undone.ID, last.ID} {
				row[id] = c.idOn(t, table, 1+(i+no)%2)
			}
			put := func(tx pgx.Tx, n store.NewTask) error {
				return errors.Join(enqueueTx(s, tx, n), insertRow(tx, table, row[n.ID]))
			}
			said, err := userTx(t, dsn, func(tx pgx.Tx) error {
				err := pgx.BeginFunc(t.Context(), tx, func(tx pgx.Tx) error { return errors.Join(put(tx, undone), errUndo) })
				if !errors.Is(err, errUndo) || strings.Contains(err.Error(), "ERROR") {
					return fmt.Errorf("undone at first: %w", err)
				}
				if err := put(tx, kept); err != nil {
					return err
				}
				err = pgx.BeginFunc(t.Context(), tx, func(tx pgx.Tx) error {
					return errors.Join(put(tx, undone), insertRow(tx, table, row[kept.ID])) // a duplicate row
				})
				if failed := new(pgconn.PgError); !errors.As(err, &failed) || failed.Code != "23505" {
					return fmt.Errorf("undone by an error: %w", err)
				}
				return pgx.BeginFunc(t.Context(), tx, func(tx pgx.Tx) error { return put(tx, last) })
			})
			if err != nil {
				t.Fatalf("node %d, ledger %d: %v", node, no, err)
			}
			for _, id := range []store.ID{kept.ID, undone.ID, last.ID} {
				want := id != undone.ID
				if got := stateOf(t, s, id) != 0; got != want || c.has(t, table, row[id]) != want {
					t.Errorf("node %d, ledger %d: a task is there: %v, its row: %v, want %v", node, no, got,
						c.has(t, table, row[id]), want)
				}
			}
			if all := strings.Join(said, "; "); !strings.Contains(all, "PREPARE TRANSACTION") {
				t.Errorf("node %d, ledger %d: committed one by one: %s", node, no, all)
			}
		}
	}
}

func TestCitusTransactionOfDatabaseSQL(t *testing.T) {
	c := citus(t)
	s := openCitus(t, c.queue(t, 4))
	db, err := sql.Open("pgx", c.dsns[0])
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for no := range 4 {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		task := keyedIn(s, no, nil)
		if err := errors.Join(enqueueTx(s, tx, task), tx.Commit()); err != nil {
			t.Fatal(err)
		}
		if got := stateOf(t, s, task.ID); got != store.Available {
			t.Errorf("ledger %d: the task is %v", no, got)
		}
	}
}

// Citus passes on few calls that are made inside functions. The others fail and say why, even if the
// node has a schema of that name.
func TestCitusCallsInFunctionsAreRefused(t *testing.T) {
	c := citus(t)
	openCitus(t, c.queue(t, 2))
	const text = "do $$ begin perform tusk_net.%s(%d, 'select 1 as one'); end $$"
	for node, dsn := range c.dsns {
		refused := 0
		for slot := range 16 {
			for _, function := range []string{"ask", "run"} {
				if _, err := ask(dsn, fmt.Sprintf(text, function, slot)); err != nil {
					refused++
					if !strings.Contains(err.Error(), "was not passed on to the node") {
						t.Errorf("node %d: %v", node, err)
					}
				}
			}
		}
		if refused == 0 {
			t.Errorf("node %d: %d calls of 32 were refused", node, refused)
		}
	}
}
