package ledgers

import (
	"context"
	"errors"
	"slices"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// mail is what is known of the letters of all ledgers.
type mail struct {
	tasks  map[store.ID]bool // in them
	unread bool              // there are letters, or may be, of which it is not known what is in them
	doubts bits              // ledgers that may have tasks in them
}

// posted is a letter that was there at the last look.
type posted struct {
	tasks []store.ID // in it
	to    bits       // the ledgers that it cannot be delivered without
}

func (s *Store) postedOf(l *letter, of int) (p posted) {
	for i := range l.Tasks {
		p.tasks = append(p.tasks, l.Tasks[i].ID)
		if at, fixed := s.fixed(&l.Tasks[i], of); fixed && l.From == 0 {
			p.to |= 1 << at
		}
	}
	for i := range l.Back {
		p.tasks = append(p.tasks, l.Back[i].ID)
		p.to |= 1 << l.To
	}
	return p
}

// forward delivers the letters of a ledger that were there at the last look already: whoever wrote the others is just
// delivering them. It adds the tasks in all of them to what is known. Those that were read before, and are for a
// ledger that is away, are not read again.
func (s *Store) forward(ctx context.Context, all []*ledger, from *ledger, known *mail) error {
	ids, err := lettersIn(ctx, from)
	if err != nil {
		known.unread = true
		return err
	}
	last, now, away := s.far.lastMail(from.no), make(map[store.ID]posted, len(ids)), awayOf(all)
	waiting := map[store.ID]bool{}
	note := func(id store.ID, p posted) {
		now[id] = p
		for _, task := range p.tasks {
			waiting[task], known.tasks[task] = true, true
		}
	}
	var failed error
	for part := range slices.Chunk(ids, store.MaxPage) {
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
			return errors.Join(failed, err)
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
		failed = errors.Join(failed, s.deliverOld(ctx, all, from, old, waiting, known))
	}
	s.far.keepMail(from.no, now)
	return failed
}

// deliverOld delivers letters of all kinds.
func (s *Store) deliverOld(
	ctx context.Context, all []*ledger, from *ledger, old opened, waiting map[store.ID]bool, known *mail,
) error {
	_, err := s.send(ctx, all, from, old, waiting)
	for _, b := range old.back {
		err = errors.Join(err, s.sendBack(ctx, all, from, b))
	}
	for i := range old.doubted {
		err = errors.Join(err, s.resolve(ctx, all, from, &old.doubted[i], known))
	}
	return err
}

// lettersIn are all letters in a ledger, the oldest first.
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

// awayOf are the ledgers that are away.
func awayOf(all []*ledger) (away bits) {
	for no, l := range all {
		if _, _, err := l.present(); err != nil {
			away |= 1 << no
		}
	}
	return away
}

// lastMail are the letters that the last look at a ledger has seen.
func (f *far) lastMail(no int) map[store.ID]posted {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mail[no]
}

// keepMail notes the letters that a look at a ledger has seen.
func (f *far) keepMail(no int, now map[store.ID]posted) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mail[no] = now
}
