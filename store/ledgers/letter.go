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

// An outcome or a record may create a task with a key that belongs in another ledger. Then a letter is stored instead,
// in the same transaction: a task that nobody claims, whose args contain the real task. Afterwards, the task is
// delivered to its ledger and the letter is deleted. The receiving ledger remembers the task for a week, so it stores
// it only once.

// letters is the queue of letters, which are never due.
const letters = "tusk.letters"

const never = 100 * 365 * 24 * time.Hour

// letter is the content of a letter.
type letter struct {
	Tasks []store.NewTask
	Back  []store.Task `json:",omitempty"` // finished tasks that are restored into the ledger To
	To    int          `json:",omitempty"`
	From  int          `json:",omitempty"` // 1 + the ledger that may have stored Tasks already, or 0
	By    uint32       `json:",omitempty"` // the server process that was to store them, or 0 if unknown
}

// carrier returns the task that carries a letter. Its id sorts like that of the letter's first task.
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

// opened is a set of letters. Their tasks are in the order of their ids.
type opened struct {
	ids     []store.ID
	tasks   []store.NewTask
	doubted []doubted
	back    []back
}

// back is a letter with finished tasks.
type back struct {
	id store.ID
	letter
}

// doubted is a letter whose tasks may be stored already.
type doubted struct {
	id store.ID
	at time.Time // when the letter was stored
	letter
}

// read parses the letter that a task carries.
func read(mail *store.Task) (l letter, err error) {
	if err := json.Unmarshal(mail.Args, &l); err != nil {
		return l, fmt.Errorf("letter %v cannot be read, so what is in it is not known: %w", mail.ID, err)
	}
	return l, nil
}

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

// sendAll delivers letters that were just stored in a ledger, unless they are gone already. It returns the results of
// enqueueing their tasks.
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
	var waiting undelivered
	for i := range mail {
		l, failed := read(&mail[i])
		if failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		o.add(&mail[i], l)
		waiting.addAll(l.Tasks)
	}
	if failed := waiting.addOlder(ctx, from, &o); failed != nil {
		return nil, errors.Join(err, failed)
	}
	answer, failed := s.send(ctx, all, from, o, &waiting)
	if err = errors.Join(err, failed); err == nil && len(answer) < len(o.tasks) {
		err = fmt.Errorf("%w: some letters wait for keys, or for older letters", store.ErrUnavailable)
	}
	return answer, err
}

// send delivers letters and deletes those that were delivered. waiting are the tasks in these and in other letters. If
// one letter may block others, they are sent in parts.
func (s *Store) send(
	ctx context.Context, all []*ledger, from *ledger, o opened, waiting *undelivered,
) (map[store.ID]store.Enqueued, error) {
	answer := map[store.ID]store.Enqueued{}
	return answer, s.sendParts(ctx, all, from, o, waiting, answer)
}

// partsOfLetters is the number of parts that letters are split into. Each part that contains a held letter costs a
// tenth of a second.
const partsOfLetters = 8

func (s *Store) sendParts(
	ctx context.Context, all []*ledger, from *ledger, o opened, waiting *undelivered,
	answer map[store.ID]store.Enqueued,
) error {
	o = o.ready(waiting)
	apart, err := s.sendTogether(ctx, all, from, o, answer)
	waiting.forget(answer)
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

// without returns the letters that are not known to be delivered.
func (o *opened) without(delivered map[store.ID]store.Enqueued) (left opened) {
	for i := range o.tasks {
		if _, is := delivered[o.tasks[i].ID]; !is {
			left.ids, left.tasks = append(left.ids, o.ids[i]), append(left.tasks, o.tasks[i])
		}
	}
	return left
}

// ready returns the letters whose tasks need not wait for other letters.
func (o *opened) ready(waiting *undelivered) (some opened) {
	own := map[store.ID]bool{}
	for i := range o.tasks {
		if n := &o.tasks[i]; !waiting.holdsUp(n, own) {
			own[n.ID] = true
			some.ids, some.tasks = append(some.ids, o.ids[i]), append(some.tasks, *n)
		}
	}
	return some
}

// sendTogether sends letters in one call. It adds the results of delivered tasks to answer. apart reports whether the
// rest might be deliverable in smaller parts.
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
	if held.Load() { // the parts report other errors; held letters wait for the next look
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

// wrapUp replaces tasks that do not belong in ledger no by letters. It returns the ids of the letters by task.
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

// heardBefore returns what a ledger has to be told before it stores tasks with needs, or makes a task wait for needs:
// the states of needed tasks in other ledgers or in letters.
func heardBefore(
	ctx context.Context, all []*ledger, no int, tasks []store.NewTask, needs []store.Need, sent map[store.ID]store.ID,
	parents sight,
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
	found, err := parents(ctx, all, ids)
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
