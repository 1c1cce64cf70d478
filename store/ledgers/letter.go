package ledgers

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// A task with a key may have to live in another ledger than what it is stored with: the
// outcome that brings it, or a record. Then a letter is stored in its place, in the same
// transaction: a task that nobody claims, and whose args are the task that is meant. Once the
// letter is there, its task is delivered where it belongs, and the letter is deleted. The
// ledger that takes a letter's task in remembers that for a week, so it does so once.

// letters is the queue of letters. They wait for ever.
const letters = "tusk.letters"

const never = 100 * 365 * 24 * time.Hour

// letter is what stands in one.
type letter struct {
	Tasks []store.NewTask
	Back  []store.Task `json:",omitempty"` // finished ones that go back into the ledger To
	To    int          `json:",omitempty"`
	From  int          `json:",omitempty"` // they may be stored already in the ledger before this one; 0: they are not
	By    uint32       `json:",omitempty"` // the process of that ledger's server that was to store them; 0: not known
}

// carrier is the task that is a letter. Of two letters of one call the later task's comes later.
func (l letter) carrier() (store.NewTask, error) {
	body, err := json.Marshal(l)
	if err != nil {
		return store.NewTask{}, fmt.Errorf("letter: %w", err)
	}
	var id store.ID
	if len(l.Back) > 0 {
		id = l.Back[0].ID
	} else {
		id = l.Tasks[0].ID
	}
	_, _ = rand.Read(id[9:])
	return store.NewTask{ID: id, Kind: "tusk.letter", Queue: letters, Args: body, Delay: never}, nil
}

// opened are letters and the tasks in them, in the order in which the tasks were made.
type opened struct {
	ids     []store.ID
	tasks   []store.NewTask
	doubted []doubted
	back    []back
}

// back is a letter of finished tasks.
type back struct {
	id store.ID
	letter
}

// doubted is a letter whose tasks may be stored already.
type doubted struct {
	id store.ID
	at time.Time // when the letter was written
	letter
}

// read is the letter that a task carries.
func read(mail *store.Task) (l letter, err error) {
	if err := json.Unmarshal(mail.Args, &l); err != nil {
		return l, fmt.Errorf("letter %v cannot be read, so what is in it is not known: %w", mail.ID, err)
	}
	return l, nil
}

// add adds a letter.
func (o *opened) add(mail *store.Task, l letter) {
	id := mail.ID
	if l.From > 0 {
		o.doubted = append(o.doubted, doubted{id, mail.EnqueuedAt, l})
		return
	}
	if len(l.Back) > 0 {
		o.back = append(o.back, back{id, l})
	}
	for _, n := range l.Tasks {
		after := func(t store.NewTask, id store.ID) int { return compareIDs(t.ID, id) }
		at, _ := slices.BinarySearchFunc(o.tasks, n.ID, after)
		o.tasks, o.ids = slices.Insert(o.tasks, at, n), slices.Insert(o.ids, at, id)
	}
}

// sendAll delivers letters that were just stored in a ledger, those of them that are there,
// and says what became of the tasks in them.
func (s *Store) sendAll(
	ctx context.Context, all []*ledger, from *ledger, ids []store.ID,
) (map[store.ID]store.Enqueued, error) {
	mail, err := ask(ctx, from, func(ctx context.Context, e *postgres.Store) ([]store.Task, error) {
		return listByID(ctx, e, store.Filter{IDs: ids})
	})
	if err != nil {
		return nil, err
	}
	var o opened
	waiting := map[store.ID]bool{}
	for i := range mail {
		l, failed := read(&mail[i])
		if failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		o.add(&mail[i], l)
		for j := range l.Tasks {
			waiting[l.Tasks[j].ID] = true
		}
	}
	answer, failed := s.send(ctx, all, from, o, waiting)
	return answer, errors.Join(err, failed)
}

// send delivers letters, and deletes those that it could deliver. Waiting are the tasks in these and in other letters:
// none is delivered before what it needs, which would count as deleted. Where one letter may keep the others from being
// delivered, parts of them are sent by themselves.
func (s *Store) send(
	ctx context.Context, all []*ledger, from *ledger, o opened, waiting map[store.ID]bool,
) (map[store.ID]store.Enqueued, error) {
	answer := map[store.ID]store.Enqueued{}
	return answer, s.sendParts(ctx, all, from, o, waiting, answer)
}

// partsOfLetters is into how many parts letters are split. Each that has one which is held costs a tenth of a second.
const partsOfLetters = 8

func (s *Store) sendParts(
	ctx context.Context, all []*ledger, from *ledger, o opened, waiting map[store.ID]bool,
	answer map[store.ID]store.Enqueued,
) error {
	o = o.ready(waiting)
	apart, err := s.sendTogether(ctx, all, from, o, answer)
	forgetAll(waiting, answer)
	left := o.without(answer)
	n := len(left.ids)
	if !apart || n < 2 {
		return err
	}
	err = nil
	size := (n + partsOfLetters - 1) / partsOfLetters
	for i := 0; i < n && ctx.Err() == nil; i += size {
		end := min(i+size, n)
		part := opened{ids: left.ids[i:end], tasks: left.tasks[i:end]}
		err = cmp.Or(err, s.sendParts(ctx, all, from, part, waiting, answer))
	}
	return cmp.Or(err, ctx.Err())
}

// without are those of the letters of which it is not known that they are delivered.
func (o *opened) without(delivered map[store.ID]store.Enqueued) (left opened) {
	for i := range o.tasks {
		if _, is := delivered[o.tasks[i].ID]; !is {
			left.ids, left.tasks = append(left.ids, o.ids[i]), append(left.tasks, o.tasks[i])
		}
	}
	return left
}

func forgetAll(waiting map[store.ID]bool, delivered map[store.ID]store.Enqueued) {
	for id := range delivered {
		delete(waiting, id)
	}
}

// ready are those of the letters whose tasks need none that wait in others.
func (o *opened) ready(waiting map[store.ID]bool) (some opened) {
	own := map[store.ID]bool{}
	for i := range o.tasks {
		n := &o.tasks[i]
		if !slices.ContainsFunc(n.Needs, func(n store.Need) bool { return waiting[n.Task] && !own[n.Task] }) {
			own[n.ID] = true
			some.ids, some.tasks = append(some.ids, o.ids[i]), append(some.tasks, *n)
		}
	}
	return some
}

// sendTogether is send for letters as one. It adds to the answer what became of the tasks that are delivered. Apart:
// others may be delivered if they are sent alone.
func (s *Store) sendTogether(
	ctx context.Context, all []*ledger, from *ledger, o opened, answer map[store.ID]store.Enqueued,
) (apart bool, err error) {
	if len(o.tasks) == 0 {
		return false, nil
	}
	places, err := s.placesOf(ctx, all, o.tasks)
	if err != nil {
		return true, err
	}
	if err := s.hear(ctx, all, places.far); err != nil {
		return true, err
	}
	var held atomic.Bool
	deliver := func(e *postgres.Store, ctx context.Context, tasks []store.NewTask) ([]store.Enqueued, error) {
		results, err := e.Deliver(ctx, tasks)
		if errors.As(err, new(*store.HeldError)) {
			held.Store(true)
		}
		return results, err
	}
	results, done, failed := enqueueApart(ctx, all, places, o.tasks, deliver)
	var gone []store.ID
	for i, is := range done {
		if is {
			answer[o.tasks[i].ID] = results[i]
			gone = append(gone, o.ids[i])
		}
	}
	apart = held.Load() || failed != nil && places.rounds() > 1
	if held.Load() { // what is wrong beside that, the parts say; one that is held waits for the next look
		failed = nil
	}
	return apart, errors.Join(failed, throwAway(ctx, from, gone))
}

// throwAway deletes letters.
func throwAway(ctx context.Context, from *ledger, ids []store.ID) (failed error) {
	for part := range slices.Chunk(ids, store.MaxPage) {
		_, err := ask(ctx, from, func(ctx context.Context, e *postgres.Store) ([]store.Edited, error) {
			return e.Edit(ctx, store.Edit{IDs: part, Change: store.Change{Op: store.Delete}})
		})
		failed = errors.Join(failed, err)
	}
	return failed
}

// wrapUp puts letters in place of those tasks that may not live in a ledger. It returns the
// letters' ids by task.
func (s *Store) wrapUp(of int, no int, tasks []store.NewTask) ([]store.NewTask, map[store.ID]store.ID, error) {
	var sent map[store.ID]store.ID
	for i := range tasks {
		if at, _ := s.fixed(&tasks[i], of); tasks[i].Key == "" || at == no {
			continue
		}
		carrier, err := letter{Tasks: tasks[i : i+1]}.carrier()
		if err != nil {
			return nil, nil, err
		}
		if sent == nil {
			sent, tasks = map[store.ID]store.ID{}, slices.Clone(tasks)
		}
		sent[tasks[i].ID] = carrier.ID
		tasks[i] = carrier
	}
	return tasks, sent, nil
}

// heardBefore is what a ledger has to hear before it stores tasks, or lets one wait, that need
// others: those elsewhere, and those in letters.
func (s *Store) heardBefore(
	ctx context.Context, all []*ledger, no int, tasks []store.NewTask, needs []store.Need, sent map[store.ID]store.ID,
) (far []postgres.Elsewhere, err error) {
	own := map[store.ID]bool{}
	var ids []store.ID
	ask := func(needs []store.Need) {
		for _, n := range needs {
			if sent[n.Task] != (store.ID{}) {
				far = append(far, postgres.Elsewhere{ID: n.Task, State: store.Pending})
			} else if !own[n.Task] {
				ids = append(ids, n.Task)
			}
		}
	}
	for i := range tasks {
		ask(tasks[i].Needs)
		own[tasks[i].ID] = true
	}
	ask(needs)
	if len(ids) == 0 {
		return far, nil
	}
	found, err := s.parentsOf(ctx, all, ids)
	if err != nil {
		return nil, err
	}
	for id, at := range found {
		if at.no != no {
			far = append(far, postgres.Elsewhere{ID: id, State: at.state})
		}
	}
	return far, nil
}
