package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Chores say what whoever leads has to do in a ledger.
type Chores struct {
	Leads  bool          // the term is valid there
	Next   time.Duration // until the next waiting task is due; negative: none waits
	Doubts bool          // Admit has needs to look at
	Turns  bool          // tasks run in turns
	Rescue bool          // somebody may have died, or it is time to look for leases of nobody
	Far    bool          // tasks need others of another ledger, or letters wait
	Ended  int64         // of the latest flush of completions

	Records []string // kinds of which there are records
}

var _ store.Overseer = (*Store)(nil)

// Oversee implements store.Overseer.
func (s *Store) Oversee(ctx context.Context, term int64, kinds ...string) (store.Chores, error) {
	all, err := ChoresOf(ctx, term, []*Store{s}, "", kinds...)
	if err != nil {
		return store.Chores{}, err
	}
	c := all[0]
	if !c.Leads {
		return store.Chores{}, fmt.Errorf("chores: %w", store.ErrNotLeader)
	}
	if c.Doubts {
		c.Next = 0
	}
	return store.Chores{Admit: c.Next, Rescue: c.Rescue, Turns: c.Turns, Ended: c.Ended, Records: c.Records}, nil
}

// ChoresOf looks at several engines on one pool, in one statement: what is idle need not be
// asked for each chore. Letters are tasks of a queue that wait for their time; empty: there are no other ledgers.
func ChoresOf(ctx context.Context, term int64, all []*Store, letters string, kinds ...string) ([]Chores, error) {
	chores := make([]Chores, len(all))
	var lane *int64
	if letters != "" {
		lane = new(laneOf(letters, 0))
	}
	err := all[0].queryText(ctx, ofEach(all, "chores", nil), func(raw [][]byte) error {
		i := int32Of(raw[0])
		c := Chores{Leads: raw[1][0] != 0, Next: -1, Doubts: raw[3][0] != 0, Turns: raw[4][0] != 0,
			Rescue: raw[5][0] != 0 || all[i].lookout.due(term, rescueAll), Far: raw[6][0] != 0,
			Ended: int64Of(raw[7]), Records: strings.Fields(string(raw[8]))}
		if raw[2] != nil {
			c.Next = time.Duration(int64Of(raw[2])) * time.Microsecond
		}
		chores[i] = c
		return nil
	}, term, lane, kinds)
	if err != nil {
		return nil, fmt.Errorf("chores: %w", err)
	}
	return chores, nil
}
