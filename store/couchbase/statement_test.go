package couchbase

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/migrate"
)

var update = flag.Bool("update", false, "write testdata/statements.n1ql")

// statements are all texts that the engine sends; for lists, one text for each condition alone.
func statements() []string {
	all := []string{queryDue, queryDoomed, queryPassed, queryLanes, queryTodo, queryTodoKeys, queryTodoMeta,
		queryHeld, queryNeedy,
		queryOld, queryOldOf, queryCount,
		queryInLine, queryGranted, queryLine, queryHeads, queryFailed, queryKeyspaces, queryVersion, queryIndexes, queryIDs,
		queryNames}
	for _, f := range []store.Filter{{}, {Queues: []string{"q"}}, {States: []store.State{store.Available}},
		{Kinds: []string{"k"}},
		{Tenants: []string{"t"}}, {Fingerprint: "f"}, {Workflow: store.ID{1}}, {Key: "k"},
		{Queues: []string{"q"}, States: []store.State{store.Available}, Kinds: []string{"k"}, Tenants: []string{"t"}}} {
		text, _ := queryList(&f)
		all = append(all, text)
	}
	return all
}

// The real planner plans these texts elsewhere, so a change of one must be noticed.
func TestStatementsAreFixed(t *testing.T) {
	steps, err := migrate.Read(migrations)
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, step := range steps {
		got += strings.ReplaceAll(step.SQL, ";\n", "\n")
	}
	got += strings.Join(statements(), "\n") + "\n"
	const path = "testdata/statements.n1ql"
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the statements have changed: run go test ./store/couchbase -run Statements -update\n%s", got)
	}
}

// A restarted cluster knows no prepared statements. The client prepares them again at once.
func TestAStatementThatTheClusterHasForgotten(t *testing.T) {
	r := newRig(t, 1)
	r.add(r.task("x", nil))
	_, err := r.b.Count(r.ctx())
	r.must("count", err)
	r.f.ForgetStatements()
	before := r.b.trips.Load()
	counts, err := r.b.Count(r.ctx())
	r.must("count again", err)
	if asked := r.b.trips.Load() - before; len(counts) != 1 || asked != 1 {
		t.Errorf("counted %+v, with %d queries", counts, asked)
	}
}
