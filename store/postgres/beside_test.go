package postgres_test

import "testing"

// fillBeside gives 200,000 other tasks everything that may lie beside a task.
const fillBeside = `
	create temp table other as select gen_random_uuid() as id, n from generate_series(1, 200000) n;
	insert into tusk.need (child, place, parent, policy) select id, 1, gen_random_uuid(), 0 from other;
	insert into tusk.open_need (child, parent, policy) select child, parent, policy from tusk.need;
	insert into tusk.note (id, progress) select id, '{"percent": 1}' from other;
	insert into tusk.stop (id, token, reason) select id, gen_random_uuid(), 'x' from other;
	insert into tusk.attempt (id, number, worker, started_at, ended_at, state, error, trace, fingerprint)
	select id, 1, gen_random_uuid(), now(), now(), 5, 'x', '', 'x' from other;
	insert into tusk.key (queue, key, holder, tasks) select n % 10, 'key-' || n, id, 1 from other`

// What is read for a few tasks does not depend on what lies beside others, whatever the planner knows about those.
func TestWhatIsReadOfATaskDoesNotDependOnOthers(t *testing.T) {
	s, pool := fresh(t)
	low, high := newID().String(), newID().String()
	ids := "'{" + low + "," + high + "}'"
	statements := map[string]string{
		"details":     ids + ", '" + low + "', '" + high + "', false",
		"known_needs": ids,
		"known_keys":  "'{1,2}', '{key-1,key-2}'",
		"meet_needs":  ids + ", " + ids,
	}
	c := acquire(t, pool)
	defer c.Release()
	check := func(what string) {
		t.Helper()
		for name, args := range statements {
			for _, plan := range []string{"force_custom_plan", "force_generic_plan"} {
				run := "set plan_cache_mode = " + plan + "; prepare s as " + s.Statement(name) + "; explain execute s(" + args + ")"
				if _, err := c.Exec(t.Context(), run); err != nil { // planning reads its pages here
					t.Fatal(err)
				}
				if pages, _ := touched(t, c, "execute s("+args+")"); pages > 60 {
					t.Errorf("%s touches %d pages with %s, %s", name, pages, what, plan)
				}
				if _, err := c.Exec(t.Context(), "deallocate s"); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	check("nothing beside other tasks")
	if _, err := c.Exec(t.Context(), fillBeside); err != nil {
		t.Fatal(err)
	}
	check("much beside other tasks, and no statistics")
	if _, err := c.Exec(t.Context(), "analyze"); err != nil {
		t.Fatal(err)
	}
	check("much beside other tasks, and statistics")
}
