package archive

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// probe has the columns of a row that decide whether it matches.
type probe struct {
	Kind       string   `parquet:"kind,dict"`
	State      string   `parquet:"state,dict"`
	Tenant     string   `parquet:"tenant,optional,dict"`
	Key        string   `parquet:"key,optional"`
	Tags       []string `parquet:"tags,list"`
	FinishedAt int64    `parquet:"finished_at,timestamp(microsecond)"`
	ErrorGroup string   `parquet:"error_group,optional,dict"`
}

var probed = []string{"kind", "state", "tenant", "key", "tags", "finished_at", "error_group"}

// Found is a page of a search.
type Found struct {
	Tasks  []store.Task
	Next   string // where to continue; empty at the end
	Looked int64  // tasks examined; if Query.Sees is set, this and Progress are 0
	Sealed int64  // tasks that match except for their args, which are encrypted
	Progress
}

// Progress is how many of the files have been searched.
type Progress struct{ Files, Of int }

// ErrCursor says that a cursor is invalid.
var ErrCursor = errors.New("the cursor cannot be read: leave it out to begin anew")

// ErrMoved says that the file of a cursor has been rewritten or deleted.
var ErrMoved = errors.New("the files of the archive were changed meanwhile: begin anew; if that does not help, " +
	"tusk archive verify names what is missing")

// spot is where a search continues: at a row of a file.
type spot struct {
	path string
	row  int64
}

func (p spot) String() string { return strconv.FormatInt(p.row, 10) + "@" + p.path }

func readSpot(text string) (p spot, err error) {
	if text == "" {
		return p, nil
	}
	row, path, ok := strings.Cut(text, "@")
	if p.row, err = strconv.ParseInt(row, 10, 64); err != nil || !ok || p.row < 0 {
		return p, ErrCursor
	}
	p.path = path
	return p, nil
}

// mostPage is roughly how many bytes the tasks of a page may take in memory. A page ends early at
// that size.
const mostPage = 6 << 20

// Search returns up to limit matching tasks, those of the latest day first. It ends early when
// budget is used up, which it checks between row groups. A budget of 0 means no limit. tell is
// called with the progress; it may be nil.
//
// Errors: ErrCursor; ErrMoved if the file in which it should continue no longer exists.
func (a *Archive) Search(
	ctx context.Context, q Query, cursor string, limit int, budget time.Duration, tell func(Progress),
) (found Found, err error) {
	at, err := readSpot(cursor)
	if err != nil {
		return found, err
	}
	s := a.scan(&q, budget, tell)
	bytes := 0
	found.Next, err = s.run(ctx, at, func(f *File, row int64, r *Row) (bool, error) {
		task, err := r.Task(f.Queue)
		found.Tasks = append(found.Tasks, task)
		bytes += r.size()
		return len(found.Tasks) < limit && bytes < mostPage, err
	})
	if found.Sealed = s.sealed; q.Sees == nil { // these numbers would reveal tasks that may not be shown
		found.Looked, found.Progress = s.looked, s.progress
	}
	return found, err
}

// Counted is the number of matching tasks.
type Counted struct {
	Tasks  int64 `json:"tasks"`
	More   bool  `json:"more,omitempty"`   // counting ended early
	Sealed int64 `json:"sealed,omitempty"` // tasks that match except for their args, which are encrypted
}

// Count counts the matching tasks. It ends early like Search.
func (a *Archive) Count(
	ctx context.Context, q Query, budget time.Duration, tell func(Progress),
) (c Counted, err error) {
	s := a.scan(&q, budget, tell)
	s.counts = true
	next, err := s.run(ctx, spot{}, func(*File, int64, *Row) (bool, error) {
		c.Tasks++
		return true, nil
	})
	return Counted{c.Tasks + s.counted, next != "", s.sealed}, err
}

// would counts what a cut would delete.
func (a *Archive) would(ctx context.Context, what cut) (gone Gone, err error) {
	manifests, _, err := a.catalogued(ctx, true)
	if err != nil {
		return gone, err
	}
	for _, m := range manifests {
		for _, f := range m.Files {
			switch what.of(&f) {
			case all:
				gone.add(Gone{1, f.Tasks, f.Bytes})
			case some:
				tasks := int64(0)
				err := a.eachProbe(ctx, f, func(p *probe) {
					if what.row(&f, &Row{Tenant: p.Tenant, FinishedAt: p.FinishedAt}) {
						tasks++
					}
				})
				if err != nil {
					return gone, err
				}
				if tasks > 0 {
					gone.add(Gone{1, tasks, f.Bytes * tasks / f.Tasks})
				}
			}
		}
	}
	return gone, nil
}

// eachProbe calls fn with each row of a file.
func (a *Archive) eachProbe(ctx context.Context, f File, fn func(*probe)) error {
	o, err := a.open(ctx, f)
	if err != nil {
		return err
	}
	for n, group := range o.parquet.RowGroups() {
		if err := o.load([]int{n}, probed...); err != nil {
			return err
		}
		if err := eachIn(group, 0, func(_ int64, p *probe) error { fn(p); return nil }); err != nil {
			return err
		}
		o.object.forget()
	}
	return nil
}
