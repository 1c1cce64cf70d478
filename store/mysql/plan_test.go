package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// planned makes a store with some of everything: two places with many tasks, and many places with one.
func planned(t *testing.T) *Store {
	t.Helper()
	ctx := t.Context()
	s, _ := queueOf(t, 0, 0)
	n := 0
	enqueue := func(size int, delay time.Duration) {
		tasks := make([]store.NewTask, size)
		for i := range tasks {
			n++
			tasks[i] = store.NewTask{ID: store.ID{1, byte(n >> 8), byte(n)}, Kind: "k", Queue: "q", Tenant: "t", Delay: delay,
				Args: []byte("{}")}
		}
		if _, err := s.Enqueue(ctx, tasks); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 {
		enqueue(1, 0)
	}
	enqueue(900, 0)
	enqueue(600, time.Hour)
	tasks := make([]store.NewTask, 900)
	for i := range tasks {
		tasks[i] = store.NewTask{ID: store.ID{2, byte(i >> 8), byte(i)}, Kind: "k", Queue: "q",
			Tenant: fmt.Sprint("t", i%30), Turn: true}
	}
	for part := range slices.Chunk(tasks, 300) {
		if _, err := s.Enqueue(ctx, part); err != nil {
			t.Fatal(err)
		}
	}
	for i := range tasks[:300] {
		tasks[i] = store.NewTask{ID: store.ID{3, byte(i >> 8), byte(i)}, Kind: "k", Queue: "keyed", Tenant: "acme",
			Key: fmt.Sprint(i)}
	}
	if _, err := s.Enqueue(ctx, tasks[:300]); err != nil {
		t.Fatal(err)
	}
	if _, err := s.db.Exec("analyze table tusk_line, tusk_key"); err != nil {
		t.Fatal(err)
	}
	worker := store.ID{9}
	if _, err := s.Extend(ctx, store.Beat{Worker: store.Worker{ID: worker}, TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	for range 30 {
		if _, err := s.Claim(ctx, store.ClaimRequest{Worker: worker, Queues: []string{"q"}, Limit: 20,
			Token: store.NewToken()}); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// access is a line of a plan: how a table is read, by which index, and how much of the key is used.
type access struct {
	table, kind, key string
	keyLen, rows     int
}

func (s access) String() string {
	return fmt.Sprintf("%s by %s (%s, %d bytes, %d rows)", s.table, s.key, s.kind, s.keyLen, s.rows)
}

func explained(t *testing.T, s *Store, text string, args ...any) (steps []access) {
	t.Helper()
	rows, err := s.db.Query("explain "+text, args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		values := make([]sql.NullString, len(names))
		into := make([]any, len(names))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		at := func(name string) string { return values[slices.Index(names, name)].String }
		one := access{table: at("table"), kind: at("type"), key: at("key")}
		one.keyLen, _ = strconv.Atoi(at("key_len")) // an index_merge has none
		one.rows, _ = strconv.Atoi(at("rows"))
		steps = append(steps, one)
	}
	return steps
}

func TestHotStatementsReadWhatTheyNeedAndNoMore(t *testing.T) {
	s := planned(t)
	var place, at, runAt int64
	if err := s.db.QueryRow("select place from tusk_task group by place having count(*) = 900").Scan(&place); err != nil {
		t.Fatal(err)
	}
	if err := s.db.QueryRow("select at from tusk_ready where place = ? limit 1", place).Scan(&at); err != nil {
		t.Fatal(err)
	}
	if err := s.db.QueryRow("select min(run_at) from tusk_waiting").Scan(&runAt); err != nil {
		t.Fatal(err)
	}
	far := []span{{place, 20, 39, 0}, {place, 80, 80, 0}, {place, 300, 319, 0}}
	id := store.ID{1}
	lane := []any{[]byte("q"), 0, at, place, 288}
	names := []rules.KeyName{{Queue: "keyed", Tenant: "acme", Key: "100"}, {Queue: "keyed", Tenant: "acme", Key: "200"}}
	keyLock, keys := amongKeys("key.lock", names)
	keyDelete, _ := amongKeys("key.delete", names)
	const near = "place = ? and first between ? and ? and next <= ? and last >= ?"
	const taskKey, laneKey = 10, 277 // place and n; queue, priority, at, place and first
	for _, test := range []struct {
		name   string
		text   string
		args   []any
		table  string
		key    string
		least  int // bytes of the key that are used
		atMost int // rows
	}{
		{"ready.find", strings.Replace(q("ready.find"), ":near", near+" or "+near, 1),
			[]any{place, 0, 31, 31, 31, place, 64, 95, 95, 95}, "tusk_ready", "tusk_ready_place", 10, 64},
		{"ready.lock", withKeys("ready.lock", ":ready", "at, place, first", 2),
			append(slices.Repeat(lane[2:], 2), lane[:2]...), "y", "PRIMARY", laneKey, 1},
		{"ready.drop", withKeys("ready.drop", ":ready", "at, place, first", 2),
			append(slices.Repeat(lane[2:], 2), lane[:2]...), "y", "PRIMARY", laneKey, 1},
		{"lease.read", list("lease.read", "?", 2), []any{id[:], id[:]}, "tusk_lease", "PRIMARY", 16, 2},
		{"lease.of worker", q("lease.of worker"), []any{id[:]}, "tusk_lease", "tusk_lease_worker", 16, 30},
		{"task.find", list("task.find", "?", 3), []any{id[:], id[:], id[:]}, "tusk_task", "tusk_task_id", 16, 9},
		{"grant.find", list("grant.find", "?", 3), []any{id[:], id[:], id[:]}, "tusk_task", "tusk_task_id", 16, 9},
		{"turn.waiting", firstHeads(0), []any{10}, "tusk_line", "tusk_line_group", 773, 100},
		{"turn.head", strings.NewReplacer(":nth", "3", "g.queue", "'q'", "g.tenant", "'t1'", "g.part",
			"''").Replace(q("turn.head")), nil,
			"tusk_line", "tusk_line_group", 771, 100},
		{"turn.more", q("turn.more"), []any{[]byte("q"), []byte("t1"), []byte(""), 4, 10}, "tusk_line",
			"tusk_line_group", 771, 100},
		{"list.ready", strings.Replace(q("list.ready"), ":queues", "where queue = 'q'", 1), []any{10}, "tusk_ready",
			"PRIMARY", 257, 1000},
		{"list.line", strings.Replace(q("list.line"), ":queues", "where queue = 'q'", 1), []any{10}, "tusk_line",
			"tusk_line_group", 257, 1000},
		{"worker.read", q("worker.read"), []any{id[:]}, "tusk_worker", "PRIMARY", 16, 1},
		{"delta.take", q("delta.take"), []any{10}, "tusk_delta", "PRIMARY", 8, 1 << 30},
		{"end.list", q("end.list"), []any{0, 10}, "tusk_end", "PRIMARY", 8, 1000},
		{"end.forget", q("end.forget"), []any{0}, "tusk_end", "PRIMARY", 8, 1000},
		{"admit.due", q("admit.due"), []any{math.MinInt64, runAt, math.MinInt64, 0, 0, 0, 10}, "tusk_waiting", "PRIMARY", 8,
			1000},
		{"key.lock", keyLock, keys, "k", "PRIMARY", 1538, 1},
		{"key.delete", keyDelete, keys, "k", "PRIMARY", 1538, 1},
		{"record.lock", q("record.lock"), []any{[]byte("q"), []byte("k")}, "tusk_record", "PRIMARY", 1, 1},
		{"rescue.overdue", q("rescue.overdue"), []any{1}, "tusk_worker", "tusk_worker_dead", 9, 2},
		{"lease.delete", strings.Replace(q("lease.delete"), ":leases",
			"token = ? and claimed_at = ? or token = ? and claimed_at = ?", 1),
			[]any{id[:], 1, id[:], 2}, "l", "PRIMARY", 16, 2},
		{"delta.delete", strings.Replace(q("delta.delete"), ":seqs", "select 1 as seq union all select 2 union all select 3",
			1), nil, "d", "PRIMARY", 8, 3},
		{"label.drop", list("label.drop", "?", 2), []any{[]byte("s1"), []byte("s1"), id[:], id[:]}, "l", "PRIMARY", 1000, 10},
	} {
		t.Run(test.name, func(t *testing.T) {
			check(t, explained(t, s, test.text, test.args...), test.table, test.key, test.least, test.atMost)
		})
	}
	for _, name := range []string{"task.read", "task.read without args", "task.lock", "lease.stages", "task.save",
		"end.tasks"} {
		t.Run(name, func(t *testing.T) {
			text, args := among(name, far)
			check(t, explained(t, s, strings.Replace(text, ":set", ", state = 3", 1), args...), "tusk_task", "PRIMARY",
				taskKey, 41)
		})
	}
	for _, name := range []string{"task.delete", "attempt.delete", "note.delete"} {
		t.Run(name, func(t *testing.T) {
			text := withKeys(name, ":tasks", "place, n", 2)
			check(t, explained(t, s, text, place, 20, place, 300), "t", "PRIMARY", taskKey, 2)
		})
	}
	values := strings.NewReplacer("the_queue", "'q'", "the_priority", "0", "the_at", fmt.Sprint(at), "the_place",
		fmt.Sprint(place), "the_first", "288", "the_last", "310", "the_next", "290", "the_lap", "0", "the_turn", "2",
		"the_claim", "1", "the_age", "1", "run_lap", "0", "run_place", fmt.Sprint(place), "run_first", "700", "run_last",
		"719", "asked", "2", "taking", "3", "clock", "1", "substring(requests, seen + 17, 16)", "'w'",
		"substring(leases, 1, 16)", "'t'", "conv(hex(substring(leases, 17, 8)), 16, 10)", "1",
		"substring(done, 33, 16)", "'w'")
	for _, test := range []struct {
		procedure, from, until string
		table, key             string
		least, atMost          int
	}{
		{"tusk_claim", "select priority, at,", ";", "tusk_ready", "PRIMARY", 257, 1000},
		{"tusk_claim", "select dead", "), 1)", "tusk_worker", "PRIMARY", 16, 1},
		{"tusk_claim", "delete from tusk_ready", ";", "tusk_ready", "PRIMARY", laneKey, 1},
		{"tusk_claim", "update tusk_ready", ";", "tusk_ready", "PRIMARY", laneKey, 1},
		{"tusk_claim", "select clock, run_lap, place", ";", "tusk_task", "PRIMARY", taskKey, 20},
		{"tusk_complete", "update tusk_task", ";", "tusk_task", "PRIMARY", taskKey, 23},
		{"tusk_grant", "update tusk_task", ";", "tusk_task", "PRIMARY", taskKey, 23},
		{"tusk_grant", "delete from tusk_line", ";", "tusk_line", "PRIMARY", taskKey, 23},
		{"tusk_watch", "select 1 from", " limit", "tusk_ready", "PRIMARY", 257, 1 << 30},
		{"tusk_complete", "delete from tusk_lease", ";", "tusk_lease", "PRIMARY", 16, 1},
	} {
		t.Run(test.procedure+": "+test.from, func(t *testing.T) {
			_, rest, found := strings.Cut(s.program.texts[test.procedure+s.program.mark], test.from)
			text, _, ends := strings.Cut(rest, test.until)
			if !found || !ends {
				t.Fatal("there is no such statement")
			}
			check(t, explained(t, s, values.Replace(test.from+text)), test.table, test.key, test.least, test.atMost)
		})
	}
}

// check fails unless a table is read by ranges of a key, or by equality.
func check(t *testing.T, steps []access, table, key string, least, atMost int) {
	t.Helper()
	for _, one := range steps {
		if one.kind == "" && one.table == "" { // the server knows the result without reading
			return
		}
		if one.table != table {
			continue
		}
		if one.rows <= 1 { // it does not matter how an empty table is read
			return
		}
		if !slices.Contains([]string{"range", "ref", "eq_ref", "const", "index"}, one.kind) || one.kind == "index" &&
			atMost < 1<<30 ||
			one.key != key || one.keyLen < least || one.rows > atMost {
			t.Errorf("%v, want by %s with at least %d bytes, at most %d rows", one, key, least, atMost)
		}
		return
	}
	t.Errorf("%s is not read: %v", table, steps)
}

func TestEveryListGoesAlongAnIndex(t *testing.T) {
	s := planned(t)
	for _, test := range []struct {
		filter store.Filter
		key    string
	}{
		{store.Filter{}, "tusk_task_id"},
		{store.Filter{Before: store.ID{9}}, "tusk_task_id"},
		{store.Filter{IDs: []store.ID{{1}, {2}}}, "tusk_task_id"},
		{store.Filter{Queues: []string{"q"}}, "tusk_task_kind"},
		{store.Filter{Kinds: []string{"k"}, Before: store.ID{9}}, "tusk_task_kind"},
		{store.Filter{Tenants: []string{"t"}}, "PRIMARY"},
		{store.Filter{Tags: []string{"x", "y"}}, "PRIMARY"},
		{store.Filter{Key: "k"}, "PRIMARY"},
		{store.Filter{Workflow: store.ID{7}, Before: store.ID{9}}, "PRIMARY"},
		{store.Filter{States: []store.State{store.Scheduled}}, "PRIMARY"},
		{store.Filter{States: []store.State{store.Running}}, "PRIMARY"},
		{store.Filter{States: []store.State{store.Available}}, "PRIMARY"},
		{store.Filter{Queues: []string{"q"}, States: []store.State{store.Running, store.Available, store.Pending,
			store.Scheduled, store.Retryable}}, "PRIMARY"},
	} {
		t.Run(fmt.Sprintf("%+v", test.filter), func(t *testing.T) {
			test.filter.Limit = 10
			texts := listed(t, s, test.filter)
			if len(texts) == 0 {
				t.Fatal("no statement")
			}
			for _, one := range texts {
				if !strings.Contains(one.text, "order by t.id desc") && !strings.Contains(one.text, "order by l.id desc") {
					continue
				}
				first := explained(t, s, one.text, one.args...)[0]
				if first.table != "" && (first.key != test.key || first.kind == "ALL") {
					t.Errorf("%v, want by %s", first, test.key)
				}
			}
		})
	}
}

// listed returns the statements that answer a List.
func listed(t *testing.T, s *Store, f store.Filter) (texts []stmt) {
	t.Helper()
	err := s.view(context.Background(), func(w *work) error {
		w.session.on = &spy{w.session.on, &texts}
		l := &listing{work: w, f: &f}
		return l.find()
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

// spy records the queries that it passes on.
type spy struct {
	runner
	texts *[]stmt
}

func (s *spy) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if _, text, sent := strings.Cut(query, "start transaction read only;\n"); sent {
		*s.texts = append(*s.texts, stmt{text: text, args: args})
	} else {
		*s.texts = append(*s.texts, stmt{text: query, args: args})
	}
	return s.runner.QueryContext(ctx, query, args...)
}
