package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// Each case is enqueued by the library and by tusk.enqueue. Either both accept it, or both refuse it. The
// parameters of tusk.enqueue come last, as SQL.
func TestSQLAndTheLibraryTakeTheSameTasks(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	client, err := tusk.NewClient(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	tags := func(n int) []string { return strings.Split(strings.TrimSuffix(strings.Repeat("x,", n), ","), ",") }
	day := 24 * time.Hour
	for name, c := range map[string]struct {
		field string // the field that the error names; empty if the task is accepted
		kind  string
		args  string
		with  tusk.Options
	}{
		"a plain task":               {},
		"the longest kind":           {kind: strings.Repeat("k", 64)},
		"a long kind":                {field: "kind", kind: strings.Repeat("k", 65)},
		"an upper-case kind":         {field: "kind", kind: "Mail"},
		"a kind with two dots":       {field: "kind", kind: "a..b"},
		"a kind that begins with -":  {field: "kind", kind: "-a"},
		"a kind that ends in a line": {field: "kind", kind: "a\n"},
		"a long queue":               {field: "queue", with: tusk.Options{Queue: strings.Repeat("q", 65)}},
		"a queue with a space":       {field: "queue", with: tusk.Options{Queue: "a b"}},
		"a tenant":                   {with: tusk.Options{Tenant: "acme"}},
		"an odd tenant":              {field: "tenant", with: tusk.Options{Tenant: "acme,"}},
		"a long tenant":              {field: "tenant", with: tusk.Options{Tenant: strings.Repeat("t", 65)}},
		"the longest key":            {with: tusk.Options{Key: strings.Repeat("é", 127) + "x"}},
		"a long key":                 {field: "key", with: tusk.Options{Key: strings.Repeat("é", 128)}},
		"a key with a line":          {field: "key", with: tusk.Options{Key: "a\nb"}},
		"a key that turns text":      {field: "key", with: tusk.Options{Key: "a\u202eb"}},
		"a key with a C1 control":    {field: "key", with: tusk.Options{Key: "a\u0085b"}},
		"a key of a unique task": {field: "key",
			with: tusk.Options{Key: "unique:mail:00112233445566778899aabbccddeeff"}},
		"a key of a schedule":    {field: "key", with: tusk.Options{Key: "schedule:nightly"}},
		"a key that is like one": {with: tusk.Options{Key: "unique"}},
		"the most tags":          {with: tusk.Options{Tags: tags(16)}},
		"too many tags":          {field: "tags", with: tusk.Options{Tags: tags(17)}},
		"the longest tag":        {with: tusk.Options{Tags: []string{strings.Repeat("é", 32)}}},
		"a long tag":             {field: "tags", with: tusk.Options{Tags: []string{"a", strings.Repeat("é", 33)}}},
		"an empty tag":           {field: "tags", with: tusk.Options{Tags: []string{""}}},
		"a tag with a control":   {field: "tags", with: tusk.Options{Tags: []string{"a\x01"}}},
		"a time before 1970": {field: "run_at",
			with: tusk.Options{RunAt: time.Date(1969, 12, 31, 0, 0, 0, 0, time.UTC)}},
		"a time before 1971":          {field: "run_at", with: tusk.Options{RunAt: time.Unix(31535999, 0)}},
		"the first time":              {with: tusk.Options{RunAt: time.Unix(31536000, 0)}},
		"a time far ahead":            {with: tusk.Options{RunAt: time.Now().Add(tusk.MaxAhead - day)}},
		"a time further ahead":        {field: "run_at", with: tusk.Options{RunAt: time.Now().Add(tusk.MaxAhead + day)}},
		"large args":                  {args: `"` + strings.Repeat("x", tusk.MaxArgsBytes-2) + `"`},
		"larger args":                 {field: "args", args: `"` + strings.Repeat("x", tusk.MaxArgsBytes-1) + `"`},
		"deep args":                   {args: nested(64)},
		"deeper args":                 {field: "args", args: nested(65)},
		"brackets in a text":          {args: `{"a":"\"` + strings.Repeat("[", 100) + `"}`},
		"NUL in the args":             {field: "args", args: `{"a":"\u0000"}`},
		"the text of NUL in the args": {args: `{"a":"\\u0000"}`},
		"a lone surrogate":            {field: "args", args: `{"a":"\ud800"}`},
		"a pair of surrogates":        {args: `{"a":"\ud83d\ude00"}`},
		"a large number":              {args: `{"a":1e400}`},
	} {
		t.Run(name, func(t *testing.T) {
			kind, args, o := c.kind, c.args, c.with
			if kind == "" {
				kind = "mail"
			}
			if args == "" {
				args = "{}"
			}
			_, err := client.Enqueue(ctx, tusk.RawArgs{Name: kind, JSON: []byte(args)}, &o)
			var invalid *tusk.InvalidError
			if refused := errors.As(err, &invalid); refused != (c.field != "") || err != nil && !refused {
				t.Fatalf("the library: %v", err)
			}
			if o.Queue == "" {
				o.Queue = "default"
			}
			var at *time.Time
			if !o.RunAt.IsZero() {
				at = &o.RunAt
			}
			_, err = pool.Exec(ctx,
				"select tusk.enqueue($1, $2::json, queue => $3, run_at => $4, key => $5, tenant => $6, tags => $7)", kind, args,
				o.Queue, at, o.Key, o.Tenant, o.Tags)
			refusedAs(t, err, c.field)
		})
	}
	for name, c := range map[string]struct{ field, text string }{
		"no kind":              {"kind", "select tusk.enqueue(null)"},
		"no queue":             {"queue", "select tusk.enqueue('k', queue => null)"},
		"no args":              {"args", "select tusk.enqueue('k', null)"},
		"no priority":          {"priority", "select tusk.enqueue('k', priority => null)"},
		"a high priority":      {"priority", "select tusk.enqueue('k', priority => 32768)"},
		"never":                {"run_at", "select tusk.enqueue('k', run_at => 'infinity')"},
		"ever":                 {"run_at", "select tusk.enqueue('k', run_at => '-infinity')"},
		"tags in a square":     {"tags", "select tusk.enqueue('k', tags => array[['a','b'],['c','d']])"},
		"no tag":               {"tags", "select tusk.enqueue('k', tags => array['a', null])"},
		"empty tags, or empty": {"", "select tusk.enqueue('k', tags => '{}', key => '', tenant => '')"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := pool.Exec(ctx, c.text)
			refusedAs(t, err, c.field)
		})
	}
	if _, err := client.List(ctx, tusk.Filter{}); err != nil {
		t.Error(err)
	}
}

// refusedAs fails unless tusk.enqueue refused a task because of a field, or accepted it if the field is empty.
func refusedAs(t *testing.T, err error, field string) {
	t.Helper()
	var said *pgconn.PgError
	switch {
	case err == nil:
		if field != "" {
			t.Error("tusk.enqueue took it")
		}
	case !errors.As(err, &said) || said.Code != "22023" || field == "" ||
		!strings.HasPrefix(said.Message, "tusk.enqueue: "+field+" "):
		t.Errorf("tusk.enqueue: %v", err)
	case len(said.Message) > 300:
		t.Errorf("a long message: %s", said.Message)
	}
}

func TestLimitsHoldForWhatSQLEnqueues(t *testing.T) {
	s, pool := fresh(t)
	ctx := context.Background()
	client, err := tusk.NewClient(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	limits := map[string]tusk.Limits{
		"one":     {Concurrency: 1},
		"fair":    {},
		"rated":   {Rate: &tusk.Rate{Allowed: 1, Period: time.Second}},
		"workers": {PerWorker: 3},
		"both":    {PerWorker: 3, PerTenant: 1},
		"tenants": {PerWorker: 3, Tenants: map[string]tusk.TenantLimits{"acme": {Weight: 2}}},
		"retries": {PerWorker: 3, BlockOnRetry: true},
	}
	for queue, l := range limits {
		if err := client.SetLimits(ctx, queue, l); err != nil {
			t.Fatal(err)
		}
	}
	limits["none"] = tusk.Limits{PerWorker: 1}
	for queue, l := range limits {
		for _, key := range []string{"", "k"} {
			if _, err := pool.Exec(ctx, "select tusk.enqueue('k', queue => $1, key => $2)", queue, key); err != nil {
				t.Fatal(err)
			}
		}
		want := int64(0)
		if l.Turns() {
			want = 2
		}
		if n := number(t, pool, "select count(*) from tusk.tasks where turn and state = 'pending' and queue = '"+queue+
			"'"); n != want {
			t.Errorf("queue %s: %d tasks wait for their turn, want %d", queue, n, want)
		}
		got, err := s.Claim(ctx, store.ClaimRequest{Worker: startWorker(t, s), Queues: []string{queue}, Limit: 10,
			Token: store.NewToken()})
		if err != nil || int64(len(got)) != 2-want {
			t.Errorf("queue %s: claimed %d, want %d: %v", queue, len(got), 2-want, err)
		}
	}
}

func TestTheViewTellsHowAndWhenATaskWasChanged(t *testing.T) {
	s, pool := fresh(t)
	task := newTasks(1, "q")[0]
	if _, err := s.Enqueue(t.Context(), []store.NewTask{task}); err != nil {
		t.Fatal(err)
	}
	changed := func(in string) (how string, at time.Time) {
		t.Helper()
		err := pool.QueryRow(t.Context(), "select coalesce(changed, ''), coalesce(changed_at, 'epoch') from "+in).Scan(&how,
			&at)
		if err != nil {
			t.Fatal(err)
		}
		return how, at
	}
	if how, _ := changed("tusk.tasks"); how != "" {
		t.Errorf("a new task was %s", how)
	}
	move := store.Change{Op: store.Move, Queue: "elsewhere"}
	if _, err := s.Edit(t.Context(), store.Edit{IDs: []store.ID{task.ID}, Change: move}); err != nil {
		t.Fatal(err)
	}
	for _, in := range []string{"tusk.tasks", "tusk.find('" + task.ID.String() + "')"} {
		if how, at := changed(in); how != "moved" || time.Since(at).Abs() > time.Minute {
			t.Errorf("%s: it was %q at %v, want moved, now", in, how, at)
		}
	}
}
