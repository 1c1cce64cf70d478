package tend

import "testing"

func TestWorkersWaitWhoHaveEndedNearlyAllThatTheyWereGiven(t *testing.T) {
	for _, c := range []struct {
		name        string
		given, held int
		dry         bool
	}{
		{"nothing was given", 0, 0, false},
		{"none has ended", 40, 40, false},
		{"half have ended", 40, 20, false},
		{"one in ten is left", 40, 4, true},
		{"none is left", 1, 0, true},
	} {
		w := &window{}
		w.room(0, 10)
		w.given(c.given)
		if w.room(c.held, 10); w.dry != c.dry {
			t.Errorf("%s: dry is %t", c.name, w.dry)
		}
	}
}

func TestALookIsAtNoMoreTasksThanTheLastLetBeGranted(t *testing.T) {
	var l turns
	for range 3 {
		l.learn(true)
	}
	if l.heads != 0 {
		t.Errorf("%d of none", l.heads)
	}
	for l.heads = 100; l.heads > 1; {
		before := l.heads
		if l.learn(false); l.heads >= before {
			t.Fatalf("%d after %d", l.heads, before)
		}
	}
	if l.learn(true); l.heads != 2 {
		t.Errorf("%d after 1, which was too few", l.heads)
	}
	for range 20 {
		l.learn(true)
	}
	if l.heads != mostHeads {
		t.Errorf("%d, want %d at most", l.heads, mostHeads)
	}
}
