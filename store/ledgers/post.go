package ledgers

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// mail is what is known about the letters of all ledgers.
type mail struct {
	tasks  map[store.ID]bool // tasks in letters
	unread bool              // there may be letters with unknown content
	doubts bits              // ledgers that may have stored tasks of letters already
}

// posted describes a letter that existed at the last look.
type posted struct {
	tasks []store.ID // its tasks
	keys  []keyed    // their keys
	to    bits       // ledgers needed for its delivery
}

func (s *Store) postedOf(l *letter, of int) (p posted) {
	for i := range l.Tasks {
		p.tasks, p.keys = append(p.tasks, l.Tasks[i].ID), append(p.keys, keyOf(&l.Tasks[i]))
		if at, fixed := s.fixed(&l.Tasks[i], of); fixed && l.From == 0 {
			p.to |= 1 << at
		}
	}
	for i := range l.Back {
		p.tasks, p.keys = append(p.tasks, l.Back[i].ID), append(p.keys, keyed{})
		p.to |= 1 << l.To
	}
	return p
}

// forward delivers the letters of a ledger that existed at the last look. Newer ones are being delivered by the
// processes that stored them. It adds the tasks in all letters to known. Letters for ledgers that are away are not read
// again. forward does not wait long for keys that users' transactions hold.
func (s *Store) forward(ctx context.Context, all []*ledger, from *ledger, known *mail) error {
	ids, err := lettersIn(ctx, from)
	if err != nil {
		known.unread = true
		return err
	}
	last, now, away := s.far.lastMail(from.no), make(map[store.ID]posted, len(ids)), awayOf(all)
	ids = s.far.afterTried(from.no, ids)
	var waiting undelivered
	note := func(id store.ID, p posted) {
		now[id] = p
		for i, task := range p.tasks {
			known.tasks[task] = true
			waiting.add(task, p.keys[i])
		}
	}
	var failed error
	var pages []opened
	var upto store.ID // last letter in pages, if there are more
	cut := false
	for part := range slices.Chunk(ids, lettersPage) {
		end := part[len(part)-1]
		rest := slices.DeleteFunc(part, func(id store.ID) bool {
			p, was := last[id]
			if was = was && p.to&away != 0; was {
				note(id, p)
			}
			return was
		})
		full, err := ask(ctx, from, func(ctx context.Context, e *postgres.Store) ([]store.Task, error) {
			return listByID(ctx, e, store.Filter{IDs: rest})
		})
		if err != nil {
			known.unread = true
			return errors.Join(failed, err, s.sendAside(ctx, all, from, pages, &waiting, store.ID{}))
		}
		var old opened
		for i := range full {
			id := full[i].ID
			l, err := read(&full[i])
			if err != nil {
				known.unread, failed = true, errors.Join(failed, err)
				continue
			}
			note(id, s.postedOf(&l, len(all)))
			if _, was := last[id]; was || l.From > 0 {
				old.add(&full[i], l)
			}
		}
		failed = errors.Join(failed, s.deliverOdd(ctx, all, from, &old, known))
		if len(old.tasks) == 0 {
			continue
		}
		if cut = len(pages) == mostPages; !cut {
			pages, upto = append(pages, old), end
		}
	}
	s.far.keepMail(from.no, now)
	if !cut {
		upto = store.ID{}
	}
	return errors.Join(failed, s.sendAside(ctx, all, from, pages, &waiting, upto))
}

const (
	sendWait   = time.Second     // how long a look waits for deliveries
	sendWithin = 5 * time.Minute // timeout of a delivery
)

// A look delivers mostPages pages of lettersPage letters. Tests reduce both.
var mostPages, lettersPage = 4, store.MaxPage

// sendAside delivers letters in order. If that takes long, for example because many keys are held, it continues in the
// background, and looks deliver no letters of the ledger meanwhile. The next look that delivers some returns its
// errors, and starts after upto if that is not zero, so that held letters do not hold up later ones.
func (s *Store) sendAside(
	ctx context.Context, all []*ledger, from *ledger, pages []opened, waiting *undelivered, upto store.ID,
) error {
	last := s.far.aside[from.no].Load()
	if len(pages) == 0 || last != nil && !last.isOver() {
		return nil
	}
	now := &sending{over: make(chan struct{})}
	if !s.far.aside[from.no].CompareAndSwap(last, now) {
		return nil
	}
	s.far.keepTried(from.no, upto)
	started := s.start(func() {
		defer close(now.over)
		within, cancel := context.WithTimeout(s.life, sendWithin)
		defer cancel()
		for _, page := range pages {
			_, err := s.send(within, all, from, page, waiting)
			now.err = errors.Join(now.err, err)
		}
	})
	if !started {
		return nil
	}
	wait := time.NewTimer(sendWait)
	defer wait.Stop()
	var err error
	if last != nil && !last.said.Load() {
		err = last.err
	}
	select {
	case <-now.over:
		now.said.Store(true)
		return errors.Join(err, now.err)
	case <-wait.C:
	case <-ctx.Done():
	}
	return err
}

// sending is a delivery of letters in progress.
type sending struct {
	over chan struct{} // closed at the end
	err  error         // valid after the end
	said atomic.Bool   // err has been returned by the look that started it
}

func (s *sending) isOver() bool {
	select {
	case <-s.over:
		return true
	default:
		return false
	}
}

// deliverOdd delivers letters with finished tasks and letters in doubt.
func (s *Store) deliverOdd(ctx context.Context, all []*ledger, from *ledger, old *opened, known *mail) (err error) {
	for _, b := range old.back {
		err = errors.Join(err, s.sendBack(ctx, all, from, b))
	}
	for i := range old.doubted {
		err = errors.Join(err, s.resolve(ctx, all, from, &old.doubted[i], known))
	}
	return err
}

// lettersIn returns the ids of all letters in a ledger, oldest first.
func lettersIn(ctx context.Context, from *ledger) (ids []store.ID, err error) {
	f := store.Filter{Queues: []string{letters}, Limit: store.MaxPage, NoArgs: true}
	for {
		page, err := ask(ctx, from, func(ctx context.Context, e *postgres.Store) ([]store.Task, error) {
			return e.List(ctx, f)
		})
		if err != nil {
			return nil, err
		}
		for i := range page {
			ids = append(ids, page[i].ID)
		}
		if len(page) < f.Limit {
			slices.Reverse(ids)
			return ids, nil
		}
		f.Before = ids[len(ids)-1]
	}
}

// awayOf returns the ledgers that are away.
func awayOf(all []*ledger) (away bits) {
	for no, l := range all {
		if _, _, err := l.present(); err != nil {
			away |= 1 << no
		}
	}
	return away
}

// lastMail returns the letters seen by the last look at a ledger.
func (f *far) lastMail(no int) map[store.ID]posted {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mail[no]
}

// keepMail records the letters seen by a look at a ledger.
func (f *far) keepMail(no int, now map[store.ID]posted) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mail[no] = now
}

// afterTried returns the letters of a ledger, which are sorted by id, in the order in which the next look delivers
// them.
func (f *far) afterTried(no int, ids []store.ID) []store.ID {
	f.mu.Lock()
	upto := f.tried[no]
	f.mu.Unlock()
	at, is := slices.BinarySearchFunc(ids, upto, compareIDs)
	if is {
		at++
	}
	return slices.Concat(ids[at:], ids[:at])
}

// keepTried records the last letter of a ledger that a look delivers, if it leaves some out.
func (f *far) keepTried(no int, upto store.ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tried[no] = upto
}
