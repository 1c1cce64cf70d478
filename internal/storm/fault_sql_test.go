//go:build unix

package storm

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// doHostile is the kind that the history records for tasks enqueued by hostile SQL.
const doHostile = "hostile"

// hostile are calls of tusk.enqueue with values that the library would reject. Each must be refused or do no harm.
var hostile = []string{
	"select tusk.enqueue('echo', queue => 'open', run_at => 'infinity')",
	"select tusk.enqueue('echo', queue => 'open', run_at => '-infinity')",
	"select tusk.enqueue('echo', queue => 'open', run_at => '294000-01-01')",
	"select tusk.enqueue('echo', queue => 'open', tags => array[['a', 'b'], ['c', 'd']])",
	"select tusk.enqueue('echo', queue => 'open', tags => array['a', null])",
	"select tusk.enqueue('echo', queue => 'open', tags => array['LONG'])",
	"select tusk.enqueue('LONG', queue => 'open')",
	"select tusk.enqueue('echo', queue => 'LONG')",
	"select tusk.enqueue('echo', queue => 'open', key => 'LONG')",
	"select tusk.enqueue('echo', queue => 'open', tenant => 'LONG')",
	"select tusk.enqueue('echo', queue => 'open', tenant => '')",
	"select tusk.enqueue('echo', queue => E'Q q \\n')",
	"select tusk.enqueue('echo', null, queue => 'open')",
	`select tusk.enqueue('echo', '{"a": 1e400, "b": "\u0000"}', queue => 'open')`,
	"select tusk.enqueue('echo', queue => 'open', priority => 40000)",
}

// enqueueHostile runs some of these statements.
func enqueueHostile(s *storm) error {
	for range 5 {
		s.count("hostile statement")
		text := strings.ReplaceAll(hostile[s.random.IntN(len(hostile))], "LONG", longText(4000))
		if err := s.sayHostile(text); err != nil {
			return err
		}
	}
	return nil
}

// sayHostile runs a hostile statement. An accepted task is recorded: it must not keep others from ending, and is
// cancelled after they have.
func (s *storm) sayHostile(text string) error {
	ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Second)
	defer cancel()
	tx, err := s.ground.admin.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	var id string
	if tx.QueryRowContext(ctx, text).Scan(&id) != nil {
		return nil // refused
	}
	taken, err := tusk.ParseID(id)
	if err != nil {
		return err
	}
	call := s.log.call(event{Op: opEnqueue, Text: doHostile, Items: []item{{ID: taken, Kind: doHostile}}})
	err = tx.Commit()
	s.log.write(event{Op: opEnqueued, Call: call, Err: doubt(err),
		Items: []item{{ID: taken, State: store.Added.String()}}})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hostile = append(s.hostile, taken)
	if !strings.Contains(text, "'infinity'") {
		s.finite = append(s.finite, taken)
	}
	s.counts["hostile statement taken"]++
	return err
}

// hostileLeft returns the tasks enqueued by hostile SQL that have not ended.
func (s *storm) hostileLeft() (left []tusk.ID) {
	for some := range slices.Chunk(s.hostile, 100) {
		tasks, err := s.client.List(s.t.Context(), tusk.Filter{IDs: some})
		if err != nil {
			s.t.Fatal(err)
		}
		for _, t := range tasks {
			if !t.State.Finished() {
				left = append(left, t.ID)
			}
		}
	}
	return left
}

// callOff cancels tasks that hostile SQL has enqueued.
func (s *storm) callOff(ids []tusk.ID) {
	if len(ids) == 0 {
		return
	}
	if _, err := s.client.Edit(s.t.Context(), ids, tusk.Change{Op: tusk.OpCancel, Reason: "hostile"}); err != nil {
		s.violation("I1", "what hostile SQL has enqueued cannot be cancelled: %v", err)
	}
}

// longText returns text that does not compress.
func longText(n int) string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	text := make([]byte, n)
	for i := range text {
		text[i] = letters[rand.IntN(len(letters))]
	}
	return string(text)
}
