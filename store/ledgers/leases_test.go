package ledgers_test

import (
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/ledgers"
)

// One transaction tells a beat to all ledgers of a server. If one of them cannot be told, the others still are.
func TestABeatIsOneTransactionOnAServerAndALockedLedgerKeepsNoOther(t *testing.T) {
	s := open(t, three.DSN(t))
	w, pool := worker(t, s), ledgers.Pool(s)
	beat := func(seq int64) error {
		_, err := s.Extend(t.Context(), store.Beat{Worker: store.Worker{ID: w}, TTL: time.Minute, Seq: seq})
		return err
	}
	told := func(seq int64) (all, together int) {
		err := pool.QueryRow(t.Context(), `
			select count(*), count(distinct x::text) from (
			  select xmin, seq from tusk_0_of_3.worker
			  union all select xmin, seq from tusk_1_of_3.worker
			  union all select xmin, seq from tusk_2_of_3.worker) w (x, seq)
			where seq = $1`, seq).Scan(&all, &together)
		if err != nil {
			t.Fatal(err)
		}
		return all, together
	}
	eventually(t, "the worker's locks are noted", func() bool { // after its first beat, in a transaction for each ledger
		var noted int
		err := pool.QueryRow(t.Context(), `
			select count(attended) from (
			  select attended from tusk_0_of_3.worker
			  union all select attended from tusk_1_of_3.worker
			  union all select attended from tusk_2_of_3.worker) w`).Scan(&noted)
		if err != nil {
			t.Fatal(err)
		}
		return noted == 3
	})
	if err := beat(100); err != nil {
		t.Fatal(err)
	}
	if all, transactions := told(100); all != 3 || transactions != 1 {
		t.Errorf("%d ledgers heard of the beat in %d transactions, want 3 and 1", all, transactions)
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), "lock table tusk_1_of_3.worker in exclusive mode"); err != nil {
		t.Fatal(err)
	}
	answer := make(chan error, 1)
	go func() { answer <- beat(101) }()
	eventually(t, "the others hear of a beat beside a locked ledger", func() bool { all, _ := told(101); return all == 2 })
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-answer; err != nil {
		t.Error(err)
	}
	if all, _ := told(101); all != 3 {
		t.Errorf("%d ledgers heard of it in the end", all)
	}
}
