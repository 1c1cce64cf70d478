package ledgers

import (
	"slices"
	"testing"
)

func TestAQuietLedgerIsMaintainedInOneRoundOfThree(t *testing.T) {
	var quiet turns
	rounds := func(n int) (skipped []bool) {
		for range n {
			skipped = append(skipped, quiet.maySkip(0))
		}
		return skipped
	}
	if got := rounds(3); slices.Contains(got, true) {
		t.Errorf("a ledger of which nothing would be heard was left out: %v", got)
	}
	quiet.listen(0, true)
	if got, want := rounds(6), []bool{true, true, false, true, true, false}; !slices.Equal(got, want) {
		t.Errorf("left out: %v, want %v", got, want)
	}
	quiet.heat(0, true)
	if got, want := rounds(4), []bool{false, true, true, false}; !slices.Equal(got, want) {
		t.Errorf("left out once tasks were seen: %v, want %v", got, want)
	}
}

// A ledger is asked and has no task, but gets one before its answer arrives.
func TestAnOldAnswerDoesNotCoolALedger(t *testing.T) {
	var busy turns
	heard := busy.heard[0].Load()
	busy.heat(0, true)
	busy.answered(0, heard, false)
	if !busy.hot[0].Load() {
		t.Error("what was heard of it is forgotten")
	}
	busy.answered(0, busy.heard[0].Load(), false)
	if busy.hot[0].Load() {
		t.Error("it stays hot although it is empty")
	}
}

// A silent ledger that may have tasks holds up no claim that the others have enough tasks for.
func TestALedgerThatIsProbedIsAskedLast(t *testing.T) {
	var busy turns
	var all []*ledger
	for no := range 4 {
		all = append(all, &ledger{no: no, probing: no == 1})
		busy.heat(no, no < 3) // 3 is cold
	}
	for range 2 * len(all) { // each one is first in turn
		if order := busy.order(all); len(order) != len(all) || order[len(all)-1] != all[1] {
			t.Errorf("it is not the last of %d", len(order))
		}
	}
}
