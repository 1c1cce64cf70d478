package couchbase

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"

	"github.com/tuskqueue/tusk/store"
)

// sheet is the document of several tasks of one call that differ only in their ids and args. A task stays in its sheet
// as long as the sheet can express its state: available, running for the first time, or plainly completed, or changed
// or cancelled together with all other tasks of the sheet while available. Otherwise the task moves into its own
// document, by a unit whose root is the sheet. So a task is found by two reads: of its own document, and then of the
// sheet of its block of ids.
type sheet struct {
	// The fields that the tasks share, as of when the tasks were new or were last changed together. Fields that have an
	// index describe the whole sheet; see sum.
	task
	From  int               `json:"from"` // the place of the first task in the block
	Texts []json.RawMessage `json:"args"`
	Lent  int               `json:"lent,omitempty"` // how many tasks run
	Runs  []run             `json:"runs"`

	lots []lot // Runs, expanded: one for each task
}

// run is a number of adjacent tasks with the same lot.
type run struct {
	N int `json:"n"`
	lot
}

// lot is the state of a task in a sheet.
type lot struct {
	State   string `json:"st"`
	Worker  string `json:"w,omitempty"`
	Token   string `json:"t,omitempty"`
	Claimed int64  `json:"cl,omitempty"`
	Ended   int64  `json:"e,omitempty"`
	Written int64  `json:"wr,omitempty"`
}

const (
	blockSize  = 64 // ids that differ only in their last six bits
	leastSheet = 8  // tasks
	mostArgs   = 64 << 10

	mixed = "m" // the state of a sheet until all its tasks have ended
	moved = "-" // the state in a sheet of a task that has moved out or was deleted
)

// block returns the sheet of the block to which an id belongs, and the id's place in the block. The sheet's key is in
// order after the ids of its block and before those of the next.
func block(id string) (r ref, place int) {
	at := idOf(id)
	last := &at[len(at)-1]
	place = int(*last) % blockSize
	*last |= blockSize - 1
	return ref{inTask, at.String() + "~"}, place
}

// sheetID returns the id of the sheet of the block to which the id of a task or of a sheet belongs.
func sheetID(id string) string {
	if isSheet(ref{inTask, id}) {
		return id
	}
	in, _ := block(id)
	return in.ID
}

func isSheet(r ref) bool { return r.C == inTask && strings.HasSuffix(r.ID, "~") }

func (d *doc) idAt(place int) string {
	id := idOf(strings.TrimSuffix(d.ID, "~"))
	id[len(id)-1] += byte(place - (blockSize - 1))
	return id.String()
}

// taskIn returns the task in a document, if there is a document and it is a task.
func (d *doc) taskIn() (*task, bool) {
	if d == nil {
		return nil, false
	}
	t, is := d.body.(*task)
	return t, is
}

func (d *doc) sheetOf() *sheet { return d.body.(*sheet) }

// UnmarshalJSON implements json.Unmarshaler.
func (sh *sheet) UnmarshalJSON(b []byte) error {
	type plain sheet
	err := json.Unmarshal(b, (*plain)(sh))
	sh.lots = nil
	for _, r := range sh.Runs {
		sh.lots = append(sh.lots, slices.Repeat([]lot{r.lot}, min(max(r.N, 0), blockSize))...)
	}
	if err == nil && (len(sh.lots) != len(sh.Texts) || sh.From < 0 || sh.From+len(sh.lots) > blockSize) {
		err = errors.New("is not a sheet")
	}
	return err
}

// sum updates Runs and the fields that have an index from the lots.
func (sh *sheet) sum() {
	sh.N, sh.Lent, sh.Available, sh.Finished, sh.Run, sh.Runs = 0, 0, 0, 0, nil, nil
	sh.State, sh.Gone = mixed, true
	ended := "c"
	for _, l := range sh.lots {
		switch l.State {
		case "a":
			sh.N++
			sh.Available = sh.RunAt
		case "r":
			sh.Lent++
			if is := (lease{l.Worker, l.Token}); !slices.Contains(sh.Run, is) {
				sh.Run = append(sh.Run, is)
			}
		case "c", "x":
			sh.Finished, ended = max(sh.Finished, l.Ended), l.State
		}
		sh.Gone = sh.Gone && l.State == moved
		if n := len(sh.Runs); n > 0 && sh.Runs[n-1].lot == l {
			sh.Runs[n-1].N++
		} else {
			sh.Runs = append(sh.Runs, run{1, l})
		}
	}
	if sh.N+sh.Lent > 0 {
		sh.Finished = 0
	} else {
		sh.State = ended
	}
}

// of returns a task in the sheet, or nil if the task is not in the sheet, or no longer.
func (d *doc) of(id string) *doc {
	sh := d.sheetOf()
	r, place := block(id)
	i := place - sh.From
	if r != d.ref || i < 0 || i >= len(sh.lots) || sh.lots[i].State == moved {
		return nil
	}
	l, t := sh.lots[i], sh.task
	t.head, t.ID, t.N, t.Args, t.inSheet = head{}, id, 1, sh.Texts[i], true
	t.State, t.Available, t.Finished, t.Run = l.State, 0, 0, nil
	switch l.State {
	case "a":
		t.Available = t.RunAt
	case "r":
		t.lend(l.Worker, l.Token, l.Claimed)
	case "c":
		t.lend(l.Worker, "", l.Claimed)
		t.Run, t.State, t.Finished, t.Since, t.Written = nil, l.State, l.Ended, l.Written, l.Written
		t.Past = []past{{Number: t.Attempt, Worker: l.Worker, Started: l.Claimed, Ended: l.Ended, State: l.State}}
	case "x":
		t.Finished = l.Ended
	}
	return &doc{ref: ref{inTask, id}, body: &t, sheet: d}
}

// keep sets the state of a task in its sheet, and reports whether the sheet can express it. If not, keep marks the task
// as moved.
func (d *doc) keep(t *task) bool {
	sh := d.sheetOf()
	_, place := block(t.ID)
	i := place - sh.From
	l := lot{State: t.State, Claimed: t.Claimed}
	switch {
	case t.State == "r" && len(t.Run) == 1:
		l.Worker, l.Token = t.Run[0].Worker, t.Run[0].Token
	case t.State == "c" && len(t.Past) == 1:
		l.Worker, l.Ended, l.Written = t.Past[0].Worker, t.Finished, t.Written
	case t.State == "x":
		l.Ended = t.Finished
	case t.State != "a":
		l.State = moved
	}
	sh.lots[i] = l
	is := d.of(t.ID)
	kept := is != nil && reflect.DeepEqual(is.task(), t)
	if !kept {
		sh.lots[i] = lot{State: moved}
	}
	sh.sum()
	d.dirty = true
	return kept
}

func (d *doc) tasks() (all []*doc) {
	sh := d.sheetOf()
	for i := range sh.lots {
		if t := d.of(d.idAt(sh.From + i)); t != nil {
			all = append(all, t)
		}
	}
	return all
}

// bySheet groups n tasks, in order: those of one sheet together, and each other task alone. It reads only the sheets of
// blocks with several of the tasks.
func (s *Store) bySheet(ctx context.Context, n int, id func(i int) store.ID) (groups [][]int, err error) {
	name := func(i int) ref {
		r, _ := block(id(i).String())
		return r
	}
	blocks := grouped(n, name)
	in, err := collect(len(blocks), func(i int) (*doc, error) {
		if len(blocks[i]) == 1 {
			return nil, nil
		}
		return s.read(ctx, name(blocks[i][0]))
	})
	for i := range blocks {
		var together []int
		for _, at := range blocks[i] {
			if in[i] != nil && in[i].of(id(at).String()) != nil {
				together = append(together, at)
			} else {
				groups = append(groups, []int{at})
			}
		}
		if together != nil {
			groups = append(groups, together)
		}
	}
	slices.SortFunc(groups, func(a, b []int) int { return a[0] - b[0] })
	return groups, err
}

// available returns what can be claimed from a document: the task itself, or up to most tasks of the sheet.
func (d *doc) available(most int) (tasks []*doc) {
	sh, is := d.body.(*sheet)
	if !is {
		return []*doc{d}
	}
	for i := 0; i < len(sh.lots) && len(tasks) < most; i++ {
		if sh.lots[i].State == "a" {
			tasks = append(tasks, d.of(d.idAt(sh.From+i)))
		}
	}
	return tasks
}

// ready returns the task for which a document has an entry in a lane, or nil if nothing in the document is available.
func (d *doc) ready() *task {
	if d == nil {
		return nil
	}
	switch b := d.body.(type) {
	case *task:
		if b.State == "a" && !b.inSheet {
			return b
		}
	case *sheet:
		if b.N > 0 {
			return &b.task
		}
	}
	return nil
}

// stands reports whether a document is available in a lane and a lap.
func (d *doc) stands(l lane, lap int) bool {
	t := d.ready()
	return t != nil && t.Lap == lap && t.lane() == l
}

// stored returns the document that holds a task.
func (d *doc) stored() *doc {
	if d.sheet != nil {
		return d.sheet
	}
	return d
}

// locate returns a document as it is stored, or a task in its sheet, or nil if it does not exist. A task that is about
// to move out of its sheet is returned pinned and without a CAS.
func (s *Store) locate(ctx context.Context, r ref) (*doc, error) {
	d, err := s.read(ctx, r)
	if d != nil || err != nil || r.C != inTask || isSheet(r) {
		return there(d, err)
	}
	at, _ := block(r.ID)
	in, err := s.read(ctx, at)
	if err != nil {
		return nil, err
	}
	if in != nil {
		if d := in.of(r.ID); d != nil {
			return d, nil
		}
		if u := in.header().Unit; u != nil && in.decided(u.U, r) != nil {
			d = blank(r)
			d.header().Pin = &pin{origin{in.ref, u.U}, in.header().Todo}
			return d, nil
		}
	}
	return there(s.read(ctx, r)) // it may have moved meanwhile
}

// spread reads tasks and, for each sheet among the ids, the sheet and all its tasks, including those that have moved.
// It returns the sheets first.
func (s *Store) spread(ctx context.Context, ids []string, read reader) (all []*doc, err error) {
	docs, err := readEach(ctx, inTask, ids, read)
	if err != nil {
		return nil, err
	}
	var sheets []*doc
	var away []string
	for i, d := range docs {
		r := ref{inTask, ids[i]}
		if !isSheet(r) {
			all = append(all, d)
			continue
		}
		from, n := 0, blockSize // if the sheet is gone, all may have moved
		if d != nil {
			sheets, from, n = append(sheets, d), d.sheetOf().From, len(d.sheetOf().lots)
		} else {
			d = &doc{ref: r, body: &sheet{}}
		}
		for place := from; place < from+n; place++ {
			if t := d.of(d.idAt(place)); t != nil {
				all = append(all, t)
			} else {
				away = append(away, d.idAt(place))
			}
		}
	}
	found, err := readEach(ctx, inTask, away, read)
	return slices.Concat(sheets, all, found), err
}

// covers reports whether a sheet has places for all tasks of another sheet of the same block.
func (sh *sheet) covers(other *sheet) bool {
	return sh.From <= other.From && other.From+len(other.lots) <= sh.From+len(sh.lots)
}

// settle sets the states of changed tasks in their sheets. A task whose state its sheet cannot express gets its own
// document.
func (w *work) settle() {
	for _, d := range w.order {
		if isSheet(d.ref) && !w.torn {
			w.stamp(d)
		}
	}
	for _, d := range w.order {
		if d.sheet == nil || !d.dirty || w.torn {
			continue
		}
		if d.sheet.keep(d.task()) {
			d.dirty = false
		} else {
			d.sheet, d.task().inSheet = nil, false
		}
	}
}

// stamp changes the fields that the tasks of a sheet share, if all of them were changed alike while they were
// available.
func (w *work) stamp(d *doc) {
	sh := d.sheetOf()
	var as *task
	place := 0
	for i, l := range sh.lots {
		if l.State == moved {
			continue
		}
		is := w.docs[ref{inTask, d.idAt(sh.From + i)}]
		if l.State != "a" || is == nil || !is.dirty || is.sheet != d {
			return
		}
		one := is.task().shared()
		if as == nil {
			as, place = &one, is.place
		} else if !reflect.DeepEqual(&one, as) {
			return
		}
	}
	if as == nil || as.State != "a" && as.State != "x" {
		return
	}
	as.head, as.ID, as.inSheet = sh.head, sh.ID, false
	if sh.task = *as; as.State == "a" {
		d.place = place
	}
}

// shared returns a task without the fields in which tasks of a sheet may differ.
func (t *task) shared() task {
	as := *t
	as.ID, as.Args = "", nil
	return as
}
