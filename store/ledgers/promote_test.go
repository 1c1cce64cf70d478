package ledgers_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store/ledgers"
)

// A standby is not promoted in time. The ledgers continue where they were, and the error says how the standby
// follows again: not before it is certain that it is not promoted later.
func TestAStandbyThatIsNotPromotedLeavesTheLedgers(t *testing.T) {
	all, dsns := servers(t, 1)
	ctx := context.Background()
	if err := divide(2, dsns[0]); err != nil {
		t.Fatal(err)
	}
	never := "create function public.pg_promote() returns boolean language sql as 'select false'"
	if err := all[0].Exec(ctx, never); err != nil {
		t.Fatal(err)
	}
	standby, err := all[0].Standby()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(standby.Stop)
	operator := open(t, all[0].DSN, standby.DSN+"&search_path=public,pg_catalog")
	_, err = operator.Move(ctx, operatorName(standby), 1)
	if err == nil || !strings.Contains(err.Error(), "pg_promote() waited") || strings.Contains(err.Error(), "%!") {
		t.Fatalf("%v", err)
	}
	_, undo, _ := strings.Cut(err.Error(), "run there ")
	undo, _, said := strings.Cut(undo, "; select pg_reload_conf()")
	if !said || !strings.HasPrefix(undo, "alter system ") {
		t.Fatalf("%v", err)
	}
	following := func(sign string) error {
		return standby.Exec(ctx, "do $$ begin if "+sign+" exists (select from pg_stat_wal_receiver) "+
			"then raise 'no'; end if; end $$")
	}
	if err := following(""); err != nil {
		t.Errorf("the standby follows, and may still be promoted: %v", err)
	}
	if got := places(t, operator); !strings.Contains(got, "tusk_1_of_2 open") {
		t.Errorf("%s", got)
	}
	if err := all[0].Exec(ctx, "drop function public.pg_promote()"); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{undo, "select pg_reload_conf()"} {
		if err := standby.Exec(ctx, text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	eventually(t, "the standby follows again", func() bool { return following("not") == nil })
	eventually(t, "the standby is promoted", func() bool {
		_, err = operator.Move(ctx, operatorName(standby), 1)
		return err == nil
	})
}

// as returns a DSN for another role.
func as(role, dsn string) string {
	_, after, _ := strings.Cut(dsn, "@")
	return "postgres://" + role + "@" + after
}

func TestAStatementForPeopleHasNoPassword(t *testing.T) {
	for text, want := range map[string]string{
		"set x = 'user=a password=secret host=b'":                        "set x = 'user=a password=… host=b'",
		"set x = 'password = ''se \\''cret'' sslpassword=secret host=b'": "set x = 'password = … sslpassword=… host=b'",
		"set x = 'host=b password=se''cret'":                             "set x = 'host=b password=…'",
		"set x = 'password=se\\ cret host=b'":                            "set x = 'password=… host=b'",
		"set x = 'postgres://a:secret@b/?application_name=c'":            "set x = 'postgres://a:…@b/?application_name=c'",
		"alter system reset primary_conninfo":                            "alter system reset primary_conninfo",
	} {
		if got := ledgers.Hidden(text); got != want {
			t.Errorf("%s becomes %s, want %s", text, got, want)
		}
	}
}

// Without the standby, no commit of the old server would end. The move is refused before any ledger stops.
func TestTheOnlySynchronousStandbyIsNotPromoted(t *testing.T) {
	all, dsns := servers(t, 1)
	if err := divide(2, dsns[0]); err != nil {
		t.Fatal(err)
	}
	standby, err := all[0].Standby()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(standby.Stop)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	synchronous := func(names string) {
		t.Helper()
		for _, text := range []string{"alter system set synchronous_standby_names = '" + names + "'",
			"select pg_reload_conf()"} {
			if err := all[0].Exec(ctx, text); err != nil {
				t.Fatal(err)
			}
		}
	}
	operator := open(t, all[0].DSN, standby.DSN)
	for _, names := range []string{"*", "ANY 1 (walreceiver, other)"} {
		synchronous(names)
		eventually(t, "the standby is synchronous", func() bool {
			var is bool
			err := ledgers.Pool(operator).QueryRow(ctx,
				"select sync_state <> 'async' from pg_stat_replication").Scan(&is)
			return err == nil && is
		})
		_, err := operator.Move(ctx, operatorName(standby), 1)
		if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "synchronous_standby_names") {
			t.Fatalf("%s: %v", names, err)
		}
		if got := places(t, operator); !strings.HasPrefix(got, "tusk_0_of_2 open, tusk_1_of_2 open") {
			t.Errorf("%s", got)
		}
	}
	if err := all[0].Exec(ctx, "create role plain login"); err != nil {
		t.Fatal(err)
	}
	plain := open(t, as("plain", all[0].DSN), as("plain", standby.DSN))
	eventually(t, "the role cannot read which standbys are synchronous", func() bool { // once the standby has it
		_, err := plain.Move(ctx, operatorName(standby), 1)
		return err != nil && strings.Contains(err.Error(), "pg_monitor")
	})
	synchronous("")
	eventually(t, "the standby is promoted", func() bool { // once the server has read its settings
		_, err := operator.Move(ctx, operatorName(standby), 1)
		return err == nil
	})
}
