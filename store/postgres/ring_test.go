package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk/store"
)

func TestAnEndInAUsersTransactionRingsForTheRerun(t *testing.T) {
	s, pool := fresh(t)
	ctx := t.Context()
	first, second := withKeys(newTasks(1, "q"), "k"), withKeys(newTasks(1, "q"), "k")
	second[0].OnConflict = store.Rerun
	ended := completed(running(t, s, first))
	other, _ := open(t, pool.Config().ConnString(), false)
	if results, err := other.Enqueue(ctx, second); err != nil || results[0].Result != store.Awaiting {
		t.Fatal(results, err)
	}
	quiet, _ := open(t, pool.Config().ConnString(), false)
	if err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		in, err := quiet.Tx(tx)
		if err != nil {
			return err
		}
		lost, err := in.Finish(ctx, ended)
		if len(lost) > 0 {
			t.Error(lost)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a notification", func() bool { return quiet.Rung("q") })
}
