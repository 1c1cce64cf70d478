package ledgers_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/ledgers"
	"github.com/tuskqueue/tusk/store/postgres"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

// schemasOf lists the schemas of a server that may be ledgers.
func schemasOf(t *testing.T, dsn string) string {
	t.Helper()
	s := open(t, dsn)
	var all string
	err := ledgers.Pool(s).QueryRow(context.Background(), `select coalesce(string_agg(nspname, ' ' order by nspname), '')
		from pg_namespace where nspname ~ '^tusk(_[0-9]+_of_[0-9]+(_keys_[0-9]+)?)?(_fenced)?$'`).Scan(&all)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// grownOf makes a queue of so many ledgers, one after the other number. If the first number is 0, it begins as a plain
// queue.
func grownOf(t *testing.T, dsn string, numbers ...int) {
	t.Helper()
	for _, n := range numbers {
		if n > 0 {
			if err := divide(n, dsn); err != nil {
				t.Fatal(err)
			}
			continue
		}
		plain, err := postgres.Open(t.Context(), dsn)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := plain.Migrate(t.Context(), -1); err != nil {
			t.Fatal(err)
		}
		plain.Close()
	}
}

// The home ledger cannot be used for a while. Nobody makes a second one.
func TestNoSecondHomeIsMade(t *testing.T) {
	for _, c := range []struct {
		name    string
		numbers []int // of ledgers, as the queue grew; 0 is a plain queue
		to      []int // what migrate is asked for
	}{
		{"new", []int{2}, []int{2, 4}},
		{"plain", []int{0}, []int{1, 2, 8}},
		{"plain and grown", []int{0, 4}, []int{4, 8}},
		{"grown", []int{2, 4}, []int{4, 8}},
	} {
		t.Run(c.name+", fenced", func(t *testing.T) {
			dsn := pgtest.DSN(t)
			grownOf(t, dsn, c.numbers...)
			operator := open(t, dsn)
			if err := operator.Fence(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
			before := schemasOf(t, dsn)
			for _, n := range append(c.to, 0) {
				var err error
				if n > 0 {
					err = divide(n, dsn)
				} else { // the number is not given
					_, err = open(t, dsn).Migrate(t.Context(), -1)
				}
				if err == nil || !strings.Contains(err.Error(), "tusk ledgers open 0") {
					t.Errorf("--ledgers %d: %v", n, err)
				}
			}
			if after := schemasOf(t, dsn); after != before {
				t.Errorf("before: %s, after: %s", before, after)
			}
			if err := operator.Open(t.Context(), "", 0); err != nil {
				t.Fatal(err)
			}
			if err := divide(c.to[len(c.to)-1], dsn); err != nil {
				t.Error(err)
			}
		})
	}
}

// The home ledger's server is not in the URL, does not answer, or is the standby of one that is not there.
func TestNoSecondHomeIsMadeWithoutItsServer(t *testing.T) {
	all, dsns := servers(t, 2)
	if err := divide(2, dsns...); err != nil {
		t.Fatal(err)
	}
	standby, err := all[0].Standby()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(standby.Stop)
	before := schemasOf(t, dsns[1])
	for _, n := range []int{2, 4} {
		if err := divide(n, dsns[1]); err == nil || !strings.Contains(err.Error(), "name its server") {
			t.Errorf("left out, --ledgers %d: %v", n, err)
		}
		if err := divide(n, dsns[1], standby.DSN); err == nil || !strings.Contains(err.Error(), "in recovery") {
			t.Errorf("in recovery, --ledgers %d: %v", n, err)
		}
	}
	_, empty := servers(t, 1)
	if err := divide(2, empty[0], standby.DSN); err == nil || !strings.Contains(err.Error(), "in recovery") {
		t.Errorf("beside an empty server: %v", err)
	}
	if err := all[0].Kill(); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{2, 4} {
		if err := divide(n, dsns...); err == nil || !strings.Contains(err.Error(), operatorName(all[0])) {
			t.Errorf("silent, --ledgers %d: %v", n, err)
		}
	}
	if after := schemasOf(t, dsns[1]) + schemasOf(t, empty[0]); after != before {
		t.Errorf("before: %s, after: %s", before, after)
	}
}

// A growth is cut off before all schemas of the new ledgers exist, and is finished later.
func TestAGrowthThatWasCutOffIsFinished(t *testing.T) {
	for _, numbers := range [][]int{{2, 5}, {5}} {
		t.Run(fmt.Sprint(numbers), func(t *testing.T) {
			dsn := pgtest.DSN(t)
			grownOf(t, dsn, numbers[:len(numbers)-1]...)
			first, keys := 0, ""
			if len(numbers) > 1 {
				first, keys = 2, "_keys_2"
			}
			s := open(t, dsn)
			for no := 4; no > first+1; no-- { // the last two are missing
				if _, err := ledgers.Pool(s).Exec(t.Context(), fmt.Sprintf("create schema tusk_%d_of_5%s", no, keys)); err != nil {
					t.Fatal(err)
				}
			}
			if err := divide(8, dsn); err == nil || !strings.Contains(err.Error(), "--ledgers 5") {
				t.Errorf("another growth before the last one is finished: %v", err)
			}
			before := schemasOf(t, dsn)
			if _, err := open(t, dsn).Migrate(t.Context(), -1); err == nil || !strings.Contains(err.Error(), "--ledgers 5") {
				t.Errorf("the number is not given: %v", err)
			}
			if after := schemasOf(t, dsn); after != before {
				t.Errorf("before: %s, after: %s", before, after)
			}
			if err := divide(5, dsn); err != nil {
				t.Fatal(err)
			}
			found, err := open(t, dsn).Places(t.Context())
			if err != nil || len(found) != 5 {
				t.Fatalf("%+v, %v", found, err)
			}
			for _, p := range found {
				if p.State != "open" || p.Why != "" {
					err = errors.Join(err, fmt.Errorf("%+v", p))
				}
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// The schemas of new ledgers exist before their tables. Processes that start or look meanwhile do without them.
func TestNewLedgersCountOnceTheyHaveTables(t *testing.T) {
	dsn := pgtest.DSN(t)
	grownOf(t, dsn, 2)
	running := open(t, dsn)
	for no := 4; no > 1; no-- {
		text := fmt.Sprintf("create schema tusk_%d_of_5_keys_2", no)
		if _, err := ledgers.Pool(running).Exec(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	var starting *ledgers.Store
	check := func(when string, used bool) { // whether new ledgers may have tasks
		t.Helper()
		starting = open(t, dsn)
		for _, s := range []*ledgers.Store{running, starting} {
			if found, err := s.Places(t.Context()); err != nil || len(found) != 2 { // looks for ledgers at once
				t.Errorf("%s: %d places, %v", when, len(found), err)
			}
			if _, err := s.Count(t.Context()); err != nil {
				t.Errorf("%s: %v", when, err)
			}
			steps, err := s.Migrations(t.Context())
			if err != nil || slices.ContainsFunc(steps, func(m store.Migration) bool { return m.AppliedAt.IsZero() }) {
				t.Errorf("%s: %d steps, not all of them applied, %v", when, len(steps), err)
			}
			_, listed := s.List(t.Context(), store.Filter{IDs: []store.ID{tusk.NewID()}})
			_, counted := s.Turns(t.Context(), 0, 10, 10)
			warnings, err := s.Check(t.Context())
			if said := strings.Contains(strings.Join(warnings, " "), "--ledgers 5"); err != nil || said != used {
				t.Errorf("%s: check: %q, %v", when, warnings, err)
			}
			for _, err := range []error{listed, counted} {
				if used != errors.Is(err, store.ErrUnavailable) || !used && err != nil {
					t.Errorf("%s: a task that is not found, or turns: %v", when, err)
				}
			}
		}
	}
	check("without tables", false)
	one, err := postgres.New(t.Context(), ledgers.Pool(running), postgres.Options{Schema: "tusk_4_of_5_keys_2"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { one.Close() })
	if _, err := one.Migrate(t.Context(), -1); err != nil { // the highest one is the first
		t.Fatal(err)
	}
	check("with some tables", true)
	if err := divide(8, dsn); err == nil || !strings.Contains(err.Error(), "first tusk migrate up --ledgers 5") {
		t.Errorf("another growth before the last one has tables: %v", err)
	}
	if _, err := open(t, dsn).Migrate(t.Context(), -1); err != nil { // the number is known from the names
		t.Fatal(err)
	}
	for _, s := range []*ledgers.Store{running, starting} {
		if found, err := s.Places(t.Context()); err != nil || len(found) != 5 {
			t.Errorf("%d places in the end, %v", len(found), err)
		}
		if _, err := s.List(t.Context(), store.Filter{IDs: []store.ID{tusk.NewID()}}); err != nil {
			t.Errorf("a task that is not found, in the end: %v", err)
		}
	}
}
