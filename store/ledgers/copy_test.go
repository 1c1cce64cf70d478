package ledgers_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/ledgers"
)

// The target refuses the copy while pg_dump still writes. The ledger goes on where it was.
func TestACopyThatFailsLeavesTheLedger(t *testing.T) {
	all, dsns := servers(t, 2)
	if err := divide(1, dsns[0]); err != nil {
		t.Fatal(err)
	}
	operator := open(t, dsns...)
	var tasks []store.NewTask
	for range 300 { // more than a pipe holds
		tasks = append(tasks, newTask(func(n *store.NewTask) {
			n.Args = []byte(`{"text":"` + strings.Repeat("x", 4000) + `"}`)
		}))
	}
	add(t, operator, tasks...)
	for _, text := range []string{
		`create function public.refuse() returns event_trigger language plpgsql as 'begin raise ''no tables here''; end'`,
		"create event trigger refuse on ddl_command_start when tag in ('CREATE TABLE') execute function public.refuse()",
	} {
		if err := all[1].Exec(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err := operator.Move(ctx, operator.ServerName(1), 0)
	if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "no tables here") {
		t.Fatalf("%v", err)
	}
	if strings.Contains(err.Error(), "does not exist") {
		t.Errorf("the error tells of what there was nothing of to drop: %v", err)
	}
	add(t, operator, newTask(nil))
	if err := all[1].Exec(t.Context(), "drop event trigger refuse"); err != nil {
		t.Fatal(err)
	}
	if _, err := operator.Move(ctx, operator.ServerName(1), 0); err != nil {
		t.Error(err)
	}
}

// The target has a schema of the ledger's name. The copy is refused before the ledger stops, and that schema stays.
func TestACopyDoesNotReplaceASchema(t *testing.T) {
	all, dsns := servers(t, 2)
	if err := divide(1, dsns[0]); err != nil {
		t.Fatal(err)
	}
	operator := open(t, dsns...)
	for _, name := range []string{"tusk_0_of_1", "tusk_0_of_1_fenced"} {
		for _, text := range []string{"create schema " + name, "create table " + name + ".mine ()"} {
			if err := all[1].Exec(t.Context(), text); err != nil {
				t.Fatal(err)
			}
		}
		if name == "tusk_0_of_1" { // an old copy
			if err := operator.Fence(t.Context(), 0); err == nil {
				t.Fatal("it is on two servers")
			}
			if err := all[0].Exec(t.Context(), "comment on schema tusk_0_of_1 is 'tusk epoch 5'"); err != nil {
				t.Fatal(err)
			}
		}
		_, err := operator.Move(t.Context(), operator.ServerName(1), 0)
		if err == nil || !strings.Contains(err.Error(), "drop-copies") || !strings.Contains(err.Error(), name) {
			t.Errorf("beside %s: %v", name, err)
		}
		if err := all[1].Exec(t.Context(), "drop table "+name+".mine; drop schema "+name); err != nil {
			t.Errorf("the schema is gone: %v", err)
		}
		if n, err := ledgers.CountIn(t.Context(), operator, 0, store.Filter{Limit: 1}); err != nil {
			t.Errorf("the ledger stands still: %d, %v", n, err)
		}
	}
}

// stepsOf records the steps of a command, and returns a function that compares them.
func stepsOf(t *testing.T, s *ledgers.Store) (are func(want ...string)) {
	var steps []string
	s.OnStep(func(step string) { steps = append(steps, step) })
	return func(want ...string) {
		t.Helper()
		if !slices.Equal(steps, want) {
			t.Errorf("steps: %q, want %q", steps, want)
		}
	}
}
