package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Chores say what work a ledger has for the leader.
type Chores struct {
	Leads  bool          // the term is valid there
	Now    time.Time     // by the server's clock
	Next   time.Duration // until the next waiting task is due; negative if none waits
	Doubts bool          // Admit has doubts to settle
	Turns  bool          // tasks run in turns
	Rescue bool          // a worker may have died, or it is time to check all leases
	Far    bool          // tasks need tasks of another ledger, or letters wait
	Moved  int64         // as in store.Chores

	Records []string // kinds that have records
}

var _ store.Overseer = (*Store)(nil)

// Oversee implements store.Overseer.
func (s *Store) Oversee(ctx context.Context, by store.Candidate, kinds ...string) (store.Chores, error) {
	all, err := ChoresOf(ctx, by, []*Store{s}, "", kinds...)
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
	told := store.Chores{Admit: c.Next, Rescue: c.Rescue, Turns: c.Turns, Moved: c.Moved, Records: c.Records}
	if by.TTL > 0 {
		told.Renewed = c.Now
	}
	return told, nil
}

// ChoresOf reads the chores of several engines on one pool in one statement, so that an idle one need not be
// queried for each chore. It renews the term in the first one, unless the candidate's TTL is 0. Letters names
// the queue whose waiting tasks are letters to other ledgers; it is empty if there are no other ledgers.
func ChoresOf(
	ctx context.Context, by store.Candidate, all []*Store, letters string, kinds ...string,
) ([]Chores, error) {
	chores := make([]Chores, len(all))
	var lane *int64
	if letters != "" {
		lane = new(laneOf(letters, 0))
	}
	args, renew, renewed := []any{by.Term, lane, kinds}, "", -1
	if by.TTL > 0 {
		args, renew, renewed = append(args, [16]byte(by.ID), by.TTL.Microseconds()), all[0].sql["renew"]+"\n", 0
	}
	text := renew + ofEach(all, "chores", func(i int) []string {
		if i == renewed {
			return []string{"{leads}", "select from renewed"}
		}
		return []string{"{leads}", all[i].sql["leads"]}
	})
	steps := []step{{text: text, args: args, row: func(raw [][]byte) error {
		i := int32Of(raw[0])
		c := Chores{Leads: raw[1][0] != 0, Next: -1, Doubts: raw[3][0] != 0, Turns: raw[4][0] != 0,
			Rescue: raw[5][0] != 0 || all[i].lookout.due(by.Term, rescueAll), Far: raw[6][0] != 0,
			Moved: int64Of(raw[7]) + all[i].lines.looks.Load(), Records: strings.Fields(string(raw[8])), Now: timeOf(raw[9])}
		if c.Leads {
			all[i].near.leads.Store(time.Now().UnixNano())
		}
		if raw[2] != nil {
			c.Next = time.Duration(int64Of(raw[2])) * time.Microsecond
		}
		chores[i] = c
		return nil
	}}}
	if letters != "" {
		steps = all[0].pinned(steps...)
	}
	if err := all[0].read(ctx, steps); err != nil {
		return nil, fmt.Errorf("chores: %w", err)
	}
	return chores, nil
}
