package ledgers_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/ledgers"
)

// A node that is taken out of the cluster is forgotten once it has no ledgers. The list of nodes is all that this test
// has of Citus.
func TestANodeThatWasRemovedIsForgotten(t *testing.T) {
	all, dsns := servers(t, 2)
	ctx := t.Context()
	if err := divide(2, dsns...); err != nil {
		t.Fatal(err)
	}
	list := `create table pg_dist_node (groupid int, nodename text, nodeport int, noderole text default 'primary',
		isactive bool default true, shouldhaveshards bool default true)`
	for group, dsn := range dsns {
		host, port := hostOf(dsn)
		list += fmt.Sprintf("; insert into pg_dist_node values (%d, '%s', %s)", group+1, host, port)
	}
	if err := all[0].Exec(ctx, list); err != nil {
		t.Fatal(err)
	}
	s := openCitus(t, "citus"+strings.TrimPrefix(dsns[0], "postgres"))
	there := keyedInto(s, 1, nil)
	add(t, s, there)
	if err := all[0].Exec(ctx, "delete from pg_dist_node where groupid = 2"); err != nil {
		t.Fatal(err)
	}
	if n, err := ledgers.MeetNodes(ctx, s); err != nil || n != 2 {
		t.Fatalf("it has a ledger: %d servers are known, %v", n, err)
	}
	if got := stateOf(t, s, there.ID); got != store.Available {
		t.Errorf("a task there is %v", got)
	}
	operator := open(t, dsns...)
	if _, err := operator.Move(ctx, operator.ServerName(0), 1); err != nil {
		t.Fatal(err)
	}
	if got := places(t, s); got != "tusk_0_of_2 open, tusk_1_of_2 open, tusk_1_of_2_fenced fenced" {
		t.Errorf("%s", got)
	}
	if n, err := ledgers.MeetNodes(ctx, s); err != nil || n != 1 {
		t.Fatalf("it has no ledger: %d servers are known, %v", n, err)
	}
	if err := all[1].Kill(); err != nil {
		t.Fatal(err)
	}
	warnings, err := s.Check(ctx)
	if err != nil || strings.Contains(strings.Join(warnings, " "), "does not answer") {
		t.Errorf("it is still looked at: %q, %v", warnings, err)
	}
	if got := stateOf(t, s, store.ID(store.NewToken())); got != 0 { // fails while a server is silent
		t.Errorf("a task that there is not is %v", got)
	}
}
