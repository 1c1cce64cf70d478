package rules

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
)

func TestWhichBeatsCount(t *testing.T) {
	for name, c := range map[string]struct {
		is        Standing
		last, seq int64
		leaves    bool
		counts    bool
		err       error
	}{
		"the first beat makes a worker known":                     {is: Unheard, seq: 1, counts: true},
		"a living worker goes on":                                 {is: Living, last: 4, seq: 5, counts: true},
		"beats without a number are in order":                     {is: Living, last: 4, counts: true},
		"a beat that was overtaken is late":                       {is: Living, last: 5, seq: 5, err: store.ErrLate},
		"a living worker leaves":                                  {is: Living, last: 4, seq: 5, leaves: true, counts: true},
		"nobody leaves who never came":                            {is: Unheard, leaves: true},
		"leaving twice changes nothing":                           {is: SignedOff, leaves: true},
		"whoever has left is dead":                                {is: SignedOff, seq: 9, err: store.ErrWorkerDead},
		"whoever was declared dead stays so":                      {is: Dead, seq: 9, err: store.ErrWorkerDead},
		"whoever was declared dead is told so when it leaves":     {is: Dead, seq: 9, leaves: true, err: store.ErrWorkerDead},
		"a beat that was overtaken by one that leaves is refused": {is: SignedOff, last: 5, seq: 4, err: store.ErrWorkerDead},
	} {
		b := store.Beat{Seq: c.seq, TTL: time.Minute}
		if c.leaves {
			b.TTL = 0
		}
		if counts, err := Beat(&b, c.is, c.last); counts != c.counts || err != c.err {
			t.Errorf("%s: %v, %v", name, counts, err)
		}
	}
}

// A database that is unavailable is not asked again for each note.
func TestNotesAreNotTriedOnceTheDatabaseIsAway(t *testing.T) {
	notes := []store.Note{{ID: store.ID{1}}, {ID: store.ID{2}}, {ID: store.ID{3}}, {ID: store.ID{4}}}
	bad, tried := errors.New("bad"), 0
	errs := NoteApart(t.Context(), notes, func(n *store.Note) error {
		tried++
		return map[byte]error{2: bad, 3: store.ErrUnavailable}[n.ID[0]]
	})
	err, held := Noted(notes, errs), new(store.HeldError)
	if !errors.As(err, &held) || !slices.Equal(held.Tasks, []store.ID{{2}, {3}, {4}}) || !errors.Is(err, bad) {
		t.Error(err)
	}
	if tried != 3 {
		t.Errorf("%d were tried", tried)
	}
	if err := Noted(notes, make([]error, 4)); err != nil {
		t.Error(err)
	}
}
