package ledgers

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// A task with a key may have to live in another ledger than what it is stored with: the
// outcome that brings it, or a record. Then a letter is stored in its place, in the same
// transaction: a task that nobody claims, and whose args are the task that is meant. Once the
// letter is there, its task is delivered where it belongs, and the letter is deleted. The
// ledger that takes a letter's task in remembers that for a day, so it does so once.

// letters is the queue of letters. They wait for ever.
const letters = "tusk.letters"

const never = 100 * 365 * 24 * time.Hour

// letter is what stands in one.
type letter struct {
	Tasks []store.NewTask
	Back  []store.Task `json:",omitempty"` // finished ones that go back into the ledger To
	To    int          `json:",omitempty"`
	From  int          `json:",omitempty"` // they may be stored already in the ledger before this one; 0: they are not
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
	letter
}

func open(mail []store.Task) (o opened, err error) {
	byTask := map[store.ID]store.ID{}
	for i := range mail {
		var l letter
		if err := json.Unmarshal(mail[i].Args, &l); err != nil {
			return o, fmt.Errorf("letter %v: %w", mail[i].ID, err)
		}
		if l.From > 0 {
			o.doubted = append(o.doubted, doubted{mail[i].ID, l})
			continue
		}
		if len(l.Back) > 0 {
			o.back = append(o.back, back{mail[i].ID, l})
		}
		for _, n := range l.Tasks {
			byTask[n.ID] = mail[i].ID
			o.tasks = append(o.tasks, n)
		}
	}
	slices.SortFunc(o.tasks, func(a, b store.NewTask) int { return compareIDs(a.ID, b.ID) })
	for i := range o.tasks {
		o.ids = append(o.ids, byTask[o.tasks[i].ID])
	}
	return o, nil
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
	o, err := open(mail)
	if err != nil {
		return nil, err
	}
	return s.send(ctx, all, from, o)
}

// send delivers letters, and deletes those that it could deliver.
func (s *Store) send(
	ctx context.Context, all []*ledger, from *ledger, o opened,
) (map[store.ID]store.Enqueued, error) {
	if len(o.tasks) == 0 {
		return nil, nil
	}
	places, err := s.placesOf(ctx, all, o.tasks)
	if err != nil {
		return nil, err
	}
	if err := s.hear(ctx, all, places.far); err != nil {
		return nil, err
	}
	results, done, failed := enqueueApart(ctx, all, places, o.tasks, (*postgres.Store).Deliver)
	answer := map[store.ID]store.Enqueued{}
	var gone []store.ID
	for i, is := range done {
		if is {
			answer[o.tasks[i].ID] = results[i]
			gone = append(gone, o.ids[i])
		}
	}
	return answer, errors.Join(failed, throwAway(ctx, from, gone))
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

// forward delivers the letters of a ledger that were there at the last look already: whoever
// wrote the others is just delivering them. It returns the tasks in all of them.
func (s *Store) forward(ctx context.Context, all []*ledger, from *ledger) ([]store.ID, error) {
	mail, err := ask(ctx, from, func(ctx context.Context, e *postgres.Store) ([]store.Task, error) {
		return e.List(ctx, store.Filter{Queues: []string{letters}, Limit: store.MaxPage})
	})
	if err != nil {
		return nil, err
	}
	o, err := open(mail)
	if err != nil {
		return nil, err
	}
	var old opened
	tasks := make([]store.ID, len(o.tasks))
	for i := range o.tasks {
		if tasks[i] = o.tasks[i].ID; s.far.seen(o.ids[i]) {
			old.ids, old.tasks = append(old.ids, o.ids[i]), append(old.tasks, o.tasks[i])
		}
	}
	_, err = s.send(ctx, all, from, old)
	for _, b := range o.back {
		for i := range b.Back {
			tasks = append(tasks, b.Back[i].ID)
		}
		if s.far.seen(b.id) {
			err = errors.Join(err, s.sendBack(ctx, all, from, b))
		}
	}
	for i := range o.doubted {
		err = errors.Join(err, s.resolve(ctx, all, from, &o.doubted[i]))
	}
	return tasks, err
}

// seen reports whether a letter was there before.
func (f *far) seen(letter store.ID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mail[letter] {
		return true
	}
	if f.mail == nil || len(f.mail) > farMost {
		f.mail = map[store.ID]bool{}
	}
	f.mail[letter] = true
	return false
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
