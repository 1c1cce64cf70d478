package store

import (
	"testing"
	"time"
)

func TestANeedIsMetOrDoomsOrStaysOpen(t *testing.T) {
	all := append(States(), 0)
	for _, test := range []struct {
		how  OnFailure
		want string // for scheduled, pending, available, running, retryable, completed, cancelled, discarded, none
	}{
		{CancelOnFailure, "ooooomddd"},
		{ContinueOnFailure, "ooooommmm"},
		{WaitOnFailure, "ooooomood"},
	} {
		n, got := Need{Task: ID{1}, OnFailure: test.how}, ""
		for _, state := range all {
			switch met, doomed := n.Met(state), n.Dooms(state); {
			case met && doomed:
				got += "?"
			case met:
				got += "m"
			case doomed:
				got += "d"
			default:
				got += "o"
			}
		}
		if got != test.want {
			t.Errorf("%d: %s, want %s", test.how, got, test.want)
		}
	}
}

func TestAQueueThatIsNamedIsKeptAsItSaysAlone(t *testing.T) {
	r := Retention{Completed: 1, Cancelled: 2, Discarded: 3, Queues: map[string]Retention{"own": {Cancelled: 4}}}
	for _, test := range []struct {
		queue string
		state State
		want  time.Duration
	}{
		{"other", Completed, 1}, {"other", Cancelled, 2}, {"other", Discarded, 3},
		{"own", Completed, 0}, {"own", Cancelled, 4}, {"own", Discarded, 0},
	} {
		if got := r.Of(test.queue, test.state); got != test.want {
			t.Errorf("%s, %v: %v, want %v", test.queue, test.state, got, test.want)
		}
	}
}
