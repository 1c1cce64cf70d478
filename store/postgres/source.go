package postgres

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/internal/bell"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// work is a transaction in which the rules decide. It locks and reads in one round trip, reads what
// else the rules request, and writes and commits in a last round trip.
type work struct {
	ctx   context.Context
	s     *Store
	c     *pgxpool.Conn
	now   time.Time // by the server's clock, after the locks were taken
	tasks map[store.ID]*rules.Row
	asked map[store.ID]bool        // tasks that were read, or do not exist
	keys  map[rules.KeyName]bool   // keys that exist
	left  map[store.ID]bool        // available tasks that stay scheduled until the next admission
	far   map[store.ID]store.State // the states of tasks in other ledgers
}

// decide runs the statement lock, which locks everything that the operation may change. Then it lets the rules decide
// what follows from the operation, and writes that. It returns the tasks that should be available, but stay scheduled
// until the next admission.
func (s *Store) decide(
	ctx context.Context, ids []store.ID, verb func(*rules.Batch) error, lock string, args ...any,
) (left map[store.ID]bool, err error) {
	err = s.repeat(ctx, func() error {
		left, err = s.decideOnce(ctx, ids, verb, lock, args...)
		return s.noted(translate(err))
	})
	return left, err
}

func (s *Store) decideOnce(
	ctx context.Context, ids []store.ID, verb func(*rules.Batch) error, lock string, args ...any,
) (left map[store.ID]bool, err error) {
	c, err := s.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Release() // closes the connection if its transaction is still open
	if err := s.atHome(ctx, c); err != nil {
		return nil, err
	}
	w := &work{
		ctx: ctx, s: s, c: c, tasks: map[store.ID]*rules.Row{}, asked: map[store.ID]bool{}, keys: map[rules.KeyName]bool{},
		left: map[store.ID]bool{}, far: map[store.ID]store.State{},
	}
	err = w.begin(ids, lock, args)
	if err == nil {
		b := rules.New(w.now, w)
		if err = verb(b); err == nil {
			err = w.apply(b)
		}
		if err == nil {
			s.ring(ringsOf(b)...)
		}
	}
	if err != nil && ctx.Err() == nil {
		within, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, _ = c.Exec(within, "rollback")
	}
	return w.left, err
}

// ringsOf returns the names to ring after the rules have decided.
func ringsOf(b *rules.Batch) (names []string) {
	for _, c := range b.Changes() {
		if c.After == nil || c.After.Place == 0 {
			continue
		}
		if name := bell.For(c.After, b.Now); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// send sends statements in one trip.
func (w *work) send(b *pgx.Batch) error {
	if b.Len() == 0 {
		return nil
	}
	w.s.trips.Add(1)
	return w.c.SendBatch(w.ctx, b).Close()
}

func (w *work) queue(b *pgx.Batch, name string, args ...any) *pgx.QueuedQuery {
	return b.Queue(w.s.sql[name], args...)
}

func (w *work) begin(ids []store.ID, lock string, args []any) error {
	var b pgx.Batch
	b.Queue("begin isolation level read committed")
	w.queue(&b, "pin")
	w.queue(&b, lock, args...)
	w.queue(&b, "now").QueryRow(func(row pgx.Row) error {
		err := row.Scan(&w.now)
		w.now = w.now.UTC()
		return err
	})
	w.queueTasks(&b, ids)
	return w.send(&b)
}

// Read implements rules.Source.
func (w *work) Read(want *rules.Want) (*rules.Found, error) {
	found := &rules.Found{}
	var b pgx.Batch
	if len(want.Keys) > 0 {
		w.queueKeys(&b, want.Keys, found)
	}
	var ask []store.ID
	for _, id := range want.Tasks {
		if !w.asked[id] {
			ask = append(ask, id)
		}
	}
	if len(ask) > 0 {
		w.queueTasks(&b, ask)
	}
	if len(want.Needs) > 0 {
		w.queueNeeds(&b, want.Needs, found)
	}
	children := new(uuids)
	if len(want.Children) > 0 {
		children = w.queueLocks(&b, want.Children)
	}
	if err := w.send(&b); err != nil {
		return nil, err
	}
	if err := w.readChildren(*children, want.Children, found); err != nil {
		return nil, err
	}
	for _, id := range want.Tasks {
		if r := w.tasks[id]; r != nil {
			found.Tasks = append(found.Tasks, r)
		} else if state, known := w.far[id]; known {
			found.Elsewhere = append(found.Elsewhere, rules.Elsewhere{Task: id, State: state})
		}
	}
	return found, nil
}

// taskRow is a row of the statement known_of.
type taskRow struct {
	ID         pgtype.UUID
	State      int16
	Lane       int64
	Queue      *string
	Tenant     string
	Key        string
	Attempt    int
	Crashes    int
	RunAt      time.Time
	ClaimedAt  *time.Time
	FinishedAt *time.Time
	Reason     string
	Worker     pgtype.UUID
	Token      pgtype.UUID
	Turn       bool
	Partition  string
	HasTurn    bool
	Open       int
	Needs      bool
	Needed     bool
	Awaits     bool
	Stopping   bool
	StopReason string
}

func (w *work) queueTasks(b *pgx.Batch, ids []store.ID) {
	for _, id := range ids {
		w.asked[id] = true
	}
	w.queue(b, "known_of", uuidsOf(ids)).Query(func(rows pgx.Rows) error {
		return eachStruct(rows, func(t *taskRow) {
			if t.State < 0 {
				w.far[t.ID.Bytes] = stateElsewhere(-t.State)
			} else {
				w.tasks[t.ID.Bytes] = t.row()
			}
		})
	})
}

func (t *taskRow) row() *rules.Row {
	r := &rules.Row{
		Task: store.Task{
			ID: t.ID.Bytes, State: store.State(t.State), Priority: priorityOf(t.Lane), Tenant: t.Tenant, Key: t.Key,
			Attempt: t.Attempt, Crashes: t.Crashes, RunAt: t.RunAt.UTC(), ClaimedAt: timeAt(t.ClaimedAt),
			FinishedAt: timeAt(t.FinishedAt), Reason: t.Reason,
			Worker: t.Worker.Bytes, Lease: t.Token.Bytes, Turn: t.Turn, Partition: t.Partition,
		},
		Open: t.Open, Needs: t.Needs, Needed: t.Needed, Awaits: t.Awaits, HasTurn: t.HasTurn,
		Stopping: t.Stopping, StopReason: t.StopReason,
	}
	if t.Queue != nil {
		r.Queue = *t.Queue
	} else {
		r.Queue = nameless(t.Lane)
	}
	return r
}

// nameless returns a placeholder for the name of a queue that was lost, as may happen after a
// failover.
func nameless(lane int64) string { return "\x00" + strconv.FormatInt(lane>>16, 10) }

// hashOfAny is hashOf for a queue that may be nameless.
func hashOfAny(queue string) int64 {
	if text, lost := strings.CutPrefix(queue, "\x00"); lost {
		hash, _ := strconv.ParseInt(text, 10, 64)
		return hash
	}
	return hashOf(queue)
}

func (w *work) queueKeys(b *pgx.Batch, names []rules.KeyName, found *rules.Found) {
	queues, keys := make([]int64, len(names)), make([]string, len(names))
	for i, n := range names {
		queues[i], keys[i] = hashOfAny(n.Queue), tenantKey(n.Tenant, n.Key)
	}
	type keyRow struct {
		Place                   int
		Holder, Awaiting, Ended pgtype.UUID
		SourceAt                *time.Time
		Tasks                   int64
	}
	w.queue(b, "known_keys", queues, keys).Query(func(rows pgx.Rows) error {
		return eachStruct(rows, func(k *keyRow) {
			name := names[k.Place-1]
			w.keys[name] = true
			found.Keys = append(found.Keys, rules.Key{
				KeyName: name, Holder: k.Holder.Bytes, Awaiting: k.Awaiting.Bytes, Ended: k.Ended.Bytes,
				Source: timeAt(k.SourceAt), Tasks: k.Tasks,
			})
		})
	})
}

// needRow says that a child needs a parent.
type needRow struct {
	Child, Parent pgtype.UUID
	Policy        int16
}

func (n *needRow) need() store.Need {
	return store.Need{Task: n.Parent.Bytes, OnFailure: store.OnFailure(n.Policy)}
}

func (w *work) queueNeeds(b *pgx.Batch, ids []store.ID, found *rules.Found) {
	type ownRow struct {
		needRow
		Open bool
	}
	w.queue(b, "known_needs", uuidsOf(ids)).Query(func(rows pgx.Rows) error {
		return eachStruct(rows, func(n *ownRow) {
			open := rules.OpenNeed{Need: n.need(), Open: n.Open}
			found.Needs = append(found.Needs, rules.OwnNeed{Child: n.Child.Bytes, OpenNeed: open})
		})
	})
}

// queueLocks locks the tasks that need the given ones, except those that others have locked.
func (w *work) queueLocks(b *pgx.Batch, ids []store.ID) *uuids {
	var children uuids
	w.queue(b, "lock_children", uuidsOf(ids)).Query(func(rows pgx.Rows) error {
		return eachRow(rows, func(raw [][]byte) error {
			children = append(children, idOf(raw[0]))
			return nil
		})
	})
	return &children
}

// readChildren reads the needs of children. It runs after they were locked.
func (w *work) readChildren(children uuids, ids []store.ID, found *rules.Found) error {
	if len(children) == 0 {
		return nil
	}
	var b pgx.Batch
	w.queue(&b, "children_to_tell", uuidsOf(ids), children).Query(func(rows pgx.Rows) error {
		return eachStruct(rows, func(n *needRow) {
			found.Children = append(found.Children, rules.Edge{Child: n.Child.Bytes, Need: n.need()})
		})
	})
	return w.send(&b)
}

// eachStruct reads rows by the names of their columns.
func eachStruct[T any](rows pgx.Rows, row func(*T)) error {
	list, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByName[T])
	for _, t := range list {
		row(t)
	}
	return err
}

// timeAt is the time of a column that may be null.
func timeAt(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}
