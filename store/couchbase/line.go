package couchbase

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/couchbase/gocb/v2"
)

// lane names the available tasks of one queue and priority. They are listed in pages, in order. A cursor says up to
// which entry they have been claimed. Entries are never removed: an entry names the lap of its task, and claims skip it
// if the task is in another lap. A full page is sealed by removing its field g, which every append replaces, so that
// appends to a sealed page fail.
//
// Pages and cursors are written without durability, so a crash may undo any of these writes. Readers repair what they
// find, and the sweep does the rest.
type lane struct {
	Queue    string `json:"q"`
	Priority int16  `json:"p"`
}

// pageSize is the number of entries at which a page is sealed. The last append may exceed it.
const pageSize = 128

// The keys of cursors, pages, and boards. A board lists the priorities of a queue.
func (l lane) name() string   { return strconv.Itoa(int(l.Priority)) } // on the board
func (l lane) cursor() string { return "c|" + l.name() + "|" + named(l.Queue) }
func (l lane) page(n int) string {
	return "p|" + strconv.Itoa(n) + "|" + l.name() + "|" + named(l.Queue)
}
func board(queue string) string { return "b|" + named(queue) }

func (t *task) lane() lane { return lane{t.Queue, t.Priority} }

// entry is a task or a sheet in one of its laps, with n available tasks.
type entry struct {
	id     string
	lap, n int
}

func (e entry) MarshalJSON() ([]byte, error) { return json.Marshal([]any{e.id, e.lap, e.n}) }

func (e *entry) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[]any{&e.id, &e.lap, &e.n})
}

type page struct {
	G       *int    `json:"g,omitempty"`
	Count   int     `json:"c"`
	Entries []entry `json:"e"`

	cas gocb.Cas // as it was read
}

type cursor struct {
	Page  int `json:"n"`
	Place int `json:"i"`
}

func (c *cursor) UnmarshalJSON(b []byte) error {
	type plain cursor
	err := json.Unmarshal(b, (*plain)(c))
	if err == nil && (c.Page < 1 || c.Place < 0) {
		err = errors.New("it is before the first page")
	}
	return err
}

// queueUp appends tasks to their lanes, in order, and wakes the workers of this process that wait for them.
func (s *Store) queueUp(ctx context.Context, tasks ...*task) error {
	lanes := grouped(len(tasks), func(i int) lane { return tasks[i].lane() })
	err := each(len(lanes), func(i int) error {
		for some := range slices.Chunk(pick(tasks, lanes[i]), pageSize) {
			entries := make([]entry, len(some))
			for at, t := range some {
				entries[at] = entry{t.ID, t.Lap, t.N}
			}
			if err := s.append(ctx, some[0].lane(), entries); err != nil {
				return fmt.Errorf("append to a lane: %w", err)
			}
		}
		return nil
	})
	for _, of := range lanes {
		s.bell.Ring(tasks[of[0]].Queue)
	}
	return err
}

// append adds entries to the last page of a lane. It may append an entry twice, which is harmless: when claims reach
// the second one, its task has left the lap.
func (s *Store) append(ctx context.Context, l lane, entries []entry) (err error) {
	n := s.minds.of(l).tail
	if n == 0 {
		if n, err = s.last(ctx, l, 0); err != nil {
			return err
		}
	}
	for try := 0; ; try++ {
		var done *gocb.MutateInResult
		err := s.again(ctx, func() (err error) {
			done, err = s.lines.MutateIn(l.page(n), []gocb.MutateInSpec{replaceG,
				gocb.IncrementSpec("c", int64(len(entries)), nil),
				gocb.ArrayAppendSpec("e", entries, &gocb.ArrayAppendSpecOptions{HasMultiple: true})},
				&gocb.MutateInOptions{Context: ctx})
			return err
		})
		switch {
		case err == nil:
			s.minds.appended(l, n)
			count := 0
			if err := done.ContentAt(1, &count); err != nil || count < pageSize {
				return err
			}
			return s.seal(ctx, l, n)
		case errors.Is(err, gocb.ErrPathNotFound): // sealed
			was := n
			if err = nil; try > 0 { // and so was the page before: there may be many more
				n, err = s.last(ctx, l, n)
			}
			if err == nil && n == was {
				n, err = s.next(ctx, l, n)
			}
			if err != nil {
				return err
			}
		case errors.Is(err, gocb.ErrDocumentNotFound): // deleted behind the cursor, or lost
			c, err := s.open(ctx, l)
			from := 0
			if err == nil && c.Page == n { // a claim moves the cursor
				from, err = s.replacePage(ctx, l, n)
			}
			if err == nil {
				n, err = s.last(ctx, l, from)
			}
			if err != nil {
				return err
			}
		case spoilt(err):
			_ = s.passing(fmt.Errorf("document %s is %w: %w", l.page(n), errDamaged, err))
			s.dropPage(ctx, l, n, 0)
		default:
			return err
		}
		if err := pause(ctx, try/8); err != nil {
			return err
		}
	}
}

// replaceG is part of every change that requires an open page or a live worker.
var replaceG = gocb.ReplaceSpec("g", 1, nil)

// open returns the cursor of a lane, and creates the lane if it does not exist.
func (s *Store) open(ctx context.Context, l lane) (c mark, err error) {
	for {
		is, err := s.cursorOf(ctx, l)
		if err != nil {
			return c, err
		}
		if is != nil {
			return *is, nil
		}
		if _, err := s.makePage(ctx, l, 1); err != nil {
			return c, err
		}
		if _, err := s.makeLine(ctx, l.cursor(), cursor{1, 0}); err != nil {
			return c, err
		}
	}
}

// openAll creates the lanes of tasks that will be available and puts them on their boards. Otherwise, if the process
// died before it appended such a task, claims would not read the lane until the sweep finds it.
func (s *Store) openAll(ctx context.Context, docs []*doc) error {
	for _, d := range docs {
		t := d.ready()
		if t == nil || !d.dirty || s.minds.of(t.lane()).tail != 0 {
			continue
		}
		l := t.lane()
		if err := s.enlist(ctx, s.lines, board(l.Queue), l.name()); err != nil {
			return err
		}
		c, err := s.open(ctx, l)
		if err != nil {
			return err
		}
		s.minds.appended(l, c.Page) // from there, append finds the last page
	}
	return nil
}

// last returns the last page of a lane from a page on, and creates the lane if it does not exist. There may be very
// many pages, so last goes in steps that double while there is a page, and then halve.
func (s *Store) last(ctx context.Context, l lane, from int) (int, error) {
	c, err := s.open(ctx, l)
	n, step := max(c.Page, from), 1
	for grows := true; err == nil && step > 0; {
		var p *page
		if p, err = s.readPage(ctx, l, n+step); p != nil {
			n += step
		}
		if grows = grows && p != nil; grows {
			step *= 2
		} else {
			step /= 2
		}
	}
	return n, err
}

// makePage creates a page if it does not exist.
func (s *Store) makePage(ctx context.Context, l lane, n int) (made bool, err error) {
	return s.makeLine(ctx, l.page(n), map[string]any{"g": 1, "c": 0, "e": []any{}})
}

// makeLine creates a page or a cursor if it does not exist.
func (s *Store) makeLine(ctx context.Context, id string, as any) (made bool, err error) {
	tries := 0
	err = s.again(ctx, func() error {
		tries++
		_, err := s.lines.Insert(id, as, &gocb.InsertOptions{Context: ctx})
		return err
	})
	if errors.Is(err, gocb.ErrDocumentExists) {
		return tries > 1, nil // perhaps by an earlier try
	}
	return err == nil, err
}

// readPage returns a page, or nil if it does not exist. It removes a damaged page.
func (s *Store) readPage(ctx context.Context, l lane, n int) (*page, error) {
	p, cas, err := fetch[page](ctx, s, s.lines, l.page(n))
	if errors.Is(err, errDamaged) {
		s.dropPage(ctx, l, n, cas)
		return nil, s.passing(err)
	}
	if p != nil {
		p.cas = cas
	}
	return p, err
}

// seal shuts a page once the next one exists.
func (s *Store) seal(ctx context.Context, l lane, n int) error {
	if _, err := s.next(ctx, l, n); err != nil {
		return err
	}
	return s.shut(ctx, l, n)
}

// shut removes the field of a page without which appends fail.
func (s *Store) shut(ctx context.Context, l lane, n int) error {
	err := s.mutate(ctx, s.lines, l.page(n), 0, gocb.RemoveSpec("g", nil))
	if absent(err) {
		return nil
	}
	return err
}

// next ensures that there is a page after page n, and returns its number. A page that was deleted behind the cursor
// must not come back, because nobody would read it. So after creating a page, next checks whether the cursor is beyond
// it, and if so appends its entries to the last page and deletes it.
func (s *Store) next(ctx context.Context, l lane, n int) (int, error) {
	c, err := s.open(ctx, l)
	if err != nil {
		return 0, err
	}
	n = max(n+1, c.Page)
	made, err := s.makePage(ctx, l, n)
	if err != nil || !made {
		return n, err
	}
	if c, err = s.open(ctx, l); err != nil || c.Page <= n {
		return n, err
	}
	if err := s.shut(ctx, l, n); err != nil {
		return 0, err
	}
	p, err := s.readPage(ctx, l, n)
	if err != nil {
		return 0, err
	}
	if p != nil && len(p.Entries) > 0 {
		if err := s.append(ctx, l, p.Entries); err != nil {
			return 0, err
		}
	}
	s.dropPage(ctx, l, n, 0)
	return c.Page, nil
}

// dropPage deletes a page that is no longer read, if it is unchanged; a CAS of 0 means in any case. It is harmless if
// that fails.
func (s *Store) dropPage(ctx context.Context, l lane, n int, cas gocb.Cas) {
	_, _ = s.lines.Remove(l.page(n), &gocb.RemoveOptions{Context: ctx, Cas: cas})
}

// mostGap is how many missing pages a cursor skips: those that were deleted shortly before a failover set the cursor
// back. If the handle knows of a later page, the cursor skips up to mostSkipped.
const (
	mostGap     = 256
	mostSkipped = 4096
)

// heal moves a cursor whose page is missing to the page that replaces it, if nobody has moved or locked the cursor.
func (s *Store) heal(ctx context.Context, l lane, at cursor) (locked bool, err error) {
	c, err := s.open(ctx, l)
	if locked = c.cas == maskedCAS && c.cursor == at; locked || err != nil || c.cursor != at {
		return locked, err
	}
	n, err := s.replacePage(ctx, l, c.Page)
	if err == nil && n != c.Page {
		err = refusal(s.move(ctx, l, c, cursor{n, 0}))
	}
	return false, err
}

// replacePage returns the next page that exists after a missing one at the cursor. If there is no such page, it creates
// the missing one again. Then it also forgets the page that was last appended to, because claims would create and shut
// each page on the way there.
func (s *Store) replacePage(ctx context.Context, l lane, n int) (int, error) {
	last := max(n+mostGap, min(s.minds.of(l).tail, n+mostSkipped))
	for from := n; from < last; from += mostGap {
		after, err := collect(min(mostGap, last-from), func(i int) (*page, error) { return s.readPage(ctx, l, from+1+i) })
		if err != nil {
			return 0, err
		}
		if i := slices.IndexFunc(after, func(p *page) bool { return p != nil }); i >= 0 {
			return from + 1 + i, nil
		}
	}
	s.minds.appended(l, 0)
	_, err := s.makePage(ctx, l, n)
	return n, err
}

// move sets a cursor that is unchanged and not locked by others, and remembers it.
func (s *Store) move(ctx context.Context, l lane, from mark, to cursor) error {
	done, err := s.lines.Replace(l.cursor(), to, &gocb.ReplaceOptions{Context: ctx, Cas: from.cas})
	if err == nil {
		s.minds.set(l, &mark{to, done.Cas()})
	}
	return err
}

// lanes returns the lanes of a queue, the most urgent first.
func (s *Store) lanes(ctx context.Context, queue string) ([]lane, error) {
	priorities, err := s.listed(ctx, s.lines, board(queue))
	if err != nil {
		return nil, err
	}
	lanes := make([]lane, len(priorities))
	for i, text := range priorities {
		p, _ := strconv.ParseInt(text, 10, 16) // checked by namesIn
		lanes[i] = lane{queue, int16(p)}
	}
	slices.SortFunc(lanes, func(a, b lane) int { return int(a.Priority) - int(b.Priority) })
	return lanes, nil
}
