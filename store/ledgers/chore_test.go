package ledgers_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/ledgers"
)

// A worker with tasks in all ledgers dies. The first rescue reaches its limit in one ledger, and the worker is dead in
// all.
func TestADeadWorkerIsDeadInAllLedgers(t *testing.T) {
	s := open(t, three.DSN(t))
	term := lead(t, s)
	dead := store.Worker{ID: store.ID(store.NewToken()), Queues: []string{"q"}}
	if _, err := s.Extend(t.Context(), store.Beat{Worker: dead, TTL: time.Second}); err != nil {
		t.Fatal(err)
	}
	for no := range 3 {
		add(t, s, keyedInto(s, no, nil))
	}
	r := store.ClaimRequest{Worker: dead.ID, Queues: dead.Queues, Limit: 3, Token: store.NewToken()}
	if got, err := s.Claim(t.Context(), r); err != nil || len(got) != 3 {
		t.Fatalf("%+v, %v", got, err)
	}
	eventually(t, "a task is rescued", func() bool {
		tasks, err := s.Rescue(t.Context(), term, 1)
		return err == nil && len(tasks) == 1
	})
	if left, err := s.Workers(t.Context()); err != nil || len(left) > 0 {
		t.Errorf("workers: %+v, %v", left, err)
	}
	if tasks, err := s.Rescue(t.Context(), term, 10); err != nil || len(tasks) != 3 {
		t.Errorf("all of its tasks: %+v, %v", tasks, err)
	}
}

// The disk of a ledger is full. Chores continue in the others, and return the error.
func TestALedgerThatIsFullHoldsUpNoChoreOfOthers(t *testing.T) {
	s := open(t, three.DSN(t))
	ctx := context.Background()
	term := lead(t, s)
	dead := store.Worker{ID: store.ID(store.NewToken()), Queues: []string{"claimed"}}
	if _, err := s.Extend(ctx, store.Beat{Worker: dead, TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	var due []store.NewTask
	for no := range 3 {
		due = append(due, keyedInto(s, no, func(n *store.NewTask) { n.Delay = 300 * time.Millisecond }))
		add(t, s, keyedInto(s, no, func(n *store.NewTask) { n.Queue = "claimed" }))
	}
	add(t, s, due...)
	r := store.ClaimRequest{Worker: dead.ID, Queues: []string{"claimed"}, Limit: 3, Token: store.NewToken()}
	if got, err := s.Claim(ctx, r); err != nil || len(got) != 3 {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, text := range []string{
		"update tusk_0_of_3.worker set expires_at = now() - interval '1 second'",
		"update tusk_1_of_3.worker set expires_at = now() - interval '1 second'",
		"update tusk_2_of_3.worker set expires_at = now() - interval '1 second'",
		`create function public.is_full() returns trigger language plpgsql as
			'begin raise exception ''no space left'' using errcode = ''disk_full''; end'`,
		`create trigger t before update or delete on tusk_0_of_3.waiting
			for each row execute function public.is_full()`,
		"create trigger t before update on tusk_0_of_3.worker for each row execute function public.is_full()",
	} {
		if _, err := ledgers.Pool(s).Exec(ctx, text); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the tasks of the others are available, and the error says what is wrong", func() bool {
		_, err := s.Admit(ctx, term, 1000)
		return errors.Is(err, store.ErrFull) &&
			stateOf(t, s, due[1].ID) == store.Available && stateOf(t, s, due[2].ID) == store.Available
	})
	if got := stateOf(t, s, due[0].ID); got != store.Scheduled {
		t.Errorf("a task of the one that is full is %v", got)
	}
	eventually(t, "the tasks of the others are rescued", func() bool {
		tasks, err := s.Rescue(ctx, term, 100)
		return err == nil && len(tasks) == 2
	})
}

// A server was demoted, or its provider has made it read-only. For a queue of many ledgers it is away, except for
// questions by which nothing is decided.
func TestAServerThatIsReadOnlyIsAwayForAllThatWrites(t *testing.T) {
	all, dsns := servers(t, 2)
	if err := divide(2, dsns...); err != nil {
		t.Fatal(err)
	}
	s := open(t, dsns...)
	ctx := context.Background()
	me := leader(t, s)
	set := func(what string) {
		t.Helper()
		for _, text := range []string{"alter system " + what, "select pg_reload_conf()"} {
			if err := all[1].Exec(ctx, text); err != nil {
				t.Fatal(err)
			}
		}
	}
	there := keyedInto(s, 1, nil)
	set("set default_transaction_read_only = on")
	found := 1 // a session may store the task before it has read the setting
	eventually(t, "it is seen that the server is read-only", func() bool {
		results, err := s.Enqueue(ctx, []store.NewTask{there})
		if err == nil && results[0].Result == store.Added {
			found++
		}
		return errors.Is(err, store.ErrUnavailable) && strings.Contains(err.Error(), "it is away")
	})
	before := add(t, s, newTask(nil))[0].ID
	for range 20 {
		if got, _, err := s.Search(ctx, store.Filter{}, 100); err != nil || len(got) != found || got[0].ID != before {
			t.Errorf("search: %d tasks, %v", len(got), err)
		}
		if _, err := s.Stats(ctx, store.StatsFilter{Bucket: time.Minute, From: time.Now().Add(-time.Hour)}); err != nil {
			t.Errorf("stats: %v", err)
		}
		if _, err := s.Errors(ctx, store.ErrorFilter{}); err != nil {
			t.Errorf("errors: %v", err)
		}
		_, counted := s.Count(ctx)
		_, listed := s.List(ctx, store.Filter{})
		_, named := s.List(ctx, store.Filter{IDs: []store.ID{there.ID}})
		_, workers := s.Workers(ctx)
		for _, err := range []error{counted, listed, named, workers} {
			if !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("a question that decisions rest on: %v", err)
			}
		}
		time.Sleep(50 * time.Millisecond) // probes go on
	}
	over := "begin read write; update tusk_1_of_2.leader set expires_at = now(); commit"
	if err := all[1].Exec(ctx, over); err != nil { // the term there expires: nobody could renew it
		t.Fatal(err)
	}
	for range 20 {
		add(t, s, newTask(nil))
		if l, err := s.Lead(ctx, me); err != nil || l.Term != me.Term {
			t.Fatalf("the term ends: %+v, %v", l, err)
		}
		if _, err := s.Admit(ctx, me.Term, 1000); err != nil {
			t.Fatal(err)
		}
	}
	set("reset default_transaction_read_only")
	eventually(t, "it is back", func() bool {
		_, err := s.Enqueue(ctx, []store.NewTask{there})
		return err == nil
	})
}

// The disk of the home ledger is full for longer than a term lasts. The leader continues in the others, and leads at
// home again when there is room.
func TestTheTermGoesOnWhileHomeIsFull(t *testing.T) {
	s := open(t, three.DSN(t))
	ctx := context.Background()
	me := leader(t, s)
	exec := func(texts ...string) {
		t.Helper()
		for _, text := range texts {
			if _, err := ledgers.Pool(s).Exec(ctx, text); err != nil {
				t.Fatal(err)
			}
		}
	}
	exec("update tusk_0_of_3.leader set expires_at = now()",
		`create function public.is_full() returns trigger language plpgsql as
			'begin raise exception ''no space left'' using errcode = ''disk_full''; end'`,
		"create trigger t before insert or update on tusk_0_of_3.leader for each row execute function public.is_full()")
	due := keyedInto(s, 1, func(n *store.NewTask) { n.Delay = 100 * time.Millisecond })
	add(t, s, due)
	eventually(t, "a task of another ledger is available", func() bool {
		if l, err := s.Lead(ctx, me); err != nil || l.Term != me.Term {
			t.Fatalf("the term ends: %+v, %v", l, err)
		}
		if _, err := s.Admit(ctx, me.Term, 1000); errors.Is(err, store.ErrNotLeader) {
			t.Fatal(err)
		}
		return stateOf(t, s, due.ID) == store.Available
	})
	if _, err := s.Turns(ctx, me.Term, 1, 1); errors.Is(err, store.ErrNotLeader) {
		t.Error(err)
	}
	exec("drop trigger t on tusk_0_of_3.leader")
	if l, err := s.Lead(ctx, me); err != nil || l.Term == 0 {
		t.Fatalf("home has room again: %+v, %v", l, err)
	}
	if _, err := s.Admit(ctx, me.Term, 1000); err != nil {
		t.Fatal(err)
	}
}

// Home was restored from another server and not rebased. A process that starts then leads on in the other ledgers.
func TestTheTermGoesOnWhileHomeIsACopyThatWasNotRebased(t *testing.T) {
	dsn := three.DSN(t)
	first, ctx := open(t, dsn), context.Background()
	me := leader(t, first)
	if _, err := ledgers.Pool(first).Exec(ctx, "update tusk_0_of_3.server set system_identifier = 1"); err != nil {
		t.Fatal(err)
	}
	s := open(t, dsn)
	due := keyedInto(s, 1, func(n *store.NewTask) { n.Delay = 100 * time.Millisecond })
	add(t, s, due)
	eventually(t, "a task of another ledger is available", func() bool {
		if l, err := s.Lead(ctx, me); err != nil || l.Term != me.Term {
			t.Fatalf("the term ends: %+v, %v", l, err)
		}
		if _, err := s.Admit(ctx, me.Term, 1000); errors.Is(err, store.ErrNotLeader) {
			t.Fatal(err)
		}
		return stateOf(t, s, due.ID) == store.Available
	})
}
