package archive

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/parquet-go/parquet-go"
	"gocloud.dev/gcerrors"
)

// scan searches the files that may have matching tasks.
type scan struct {
	archive  *Archive
	q        *Query
	matches  func(args []byte) bool // nil if any args match
	until    time.Time              // when it ends early; zero if it does not
	tell     func(Progress)
	counts   bool // count whole files by their manifests, and other rows as they match
	progress Progress

	looked, sealed, counted int64
}

func (a *Archive) scan(q *Query, budget time.Duration, tell func(Progress)) *scan {
	s := &scan{archive: a, q: q, matches: q.argsMatcher(), tell: tell}
	if budget > 0 {
		s.until = time.Now().Add(budget)
	}
	return s
}

// take is called with each matching row, and reports whether to continue.
type take func(f *File, row int64, r *Row) (more bool, err error)

// run searches from a spot on. It returns where to continue, or "" if it has searched everything.
func (s *scan) run(ctx context.Context, at spot, take take) (next string, err error) {
	manifests, _, err := s.archive.catalogued(ctx, at.path == "")
	if err != nil {
		return "", err
	}
	files := s.q.files(manifests)
	first := 0
	if at.path != "" {
		if first = slices.IndexFunc(files, func(f File) bool { return f.Path == at.path }); first < 0 {
			return "", ErrMoved
		}
	}
	for i := first; i < len(files); i++ {
		s.progress = Progress{i, len(files)}
		if s.tell != nil {
			s.tell(s.progress)
		}
		stopped, err := s.file(ctx, &files[i], at.row, take)
		if gcerrors.Code(err) == gcerrors.NotFound {
			return "", ErrMoved
		}
		if err != nil {
			return "", fmt.Errorf("%s cannot be read; tusk archive verify names damaged files: %w", files[i].Path, err)
		}
		if stopped >= 0 {
			return spot{files[i].Path, stopped}.String(), nil
		}
		at.row = 0
	}
	s.progress.Files = s.progress.Of
	return "", nil
}

// file searches a file from a row on. It returns the row before which it stopped, or -1 at the end.
func (s *scan) file(ctx context.Context, f *File, from int64, take take) (stopped int64, err error) {
	if s.counts && s.q.all(f) {
		s.counted += f.Tasks
		return -1, nil
	}
	o, err := s.archive.open(ctx, *f)
	if err != nil {
		return -1, err
	}
	first := int64(0) // number of the group's first row
	for n, group := range o.parquet.RowGroups() {
		last := first + group.NumRows()
		if from < last {
			stopped, err := s.group(o, f, n, max(from-first, 0), take)
			if err != nil {
				return -1, err
			}
			if stopped >= 0 {
				return first + stopped, nil
			}
			if !s.until.IsZero() && time.Now().After(s.until) {
				return last, nil
			}
		}
		first = last
	}
	return -1, nil
}

// group searches a row group from a row on. It returns the row before which it stopped, or -1 at
// the end.
func (s *scan) group(o *opened, f *File, n int, from int64, take take) (stopped int64, err error) {
	group := o.parquet.RowGroups()[n]
	if !s.q.mayGroup(o, group) {
		s.looked += group.NumRows() - from
		return -1, nil
	}
	defer o.object.forget()
	if err := o.load([]int{n}, probed...); err != nil {
		return -1, err
	}
	var rows []int64
	err = eachIn(group, from, func(row int64, p *probe) error {
		if s.q.matches(f, p) {
			rows = append(rows, row)
		}
		return nil
	})
	if err != nil {
		return -1, err
	}
	if s.counts && s.matches == nil {
		s.counted += int64(len(rows))
		return -1, nil
	}
	if len(rows) > 0 {
		if err := o.load([]int{n}); err != nil {
			return -1, err
		}
	}
	stopped = -1
	err = eachOf(group, rows, func(row int64, r *Row) error {
		if s.matches != nil && encrypted(r.Args) {
			s.sealed++
			return nil
		}
		if s.matches != nil && !s.matches([]byte(r.Args)) {
			return nil
		}
		more, err := take(f, row, r)
		if err == nil && !more {
			stopped, err = row+1, io.EOF
		}
		return err
	})
	if err == io.EOF {
		err = nil
	}
	if s.looked += group.NumRows() - from; stopped >= 0 {
		s.looked -= group.NumRows() - stopped
	}
	return stopped, err
}

const rowsAtOnce = 64

// eachIn calls fn with each row of a row group, starting at row from.
func eachIn[T any](group parquet.RowGroup, from int64, fn func(row int64, r *T) error) error {
	r := parquet.NewGenericRowGroupReader[T](group)
	defer r.Close()
	if err := r.SeekToRow(from); err != nil {
		return err
	}
	for rows, at := make([]T, 4*rowsAtOnce), from; ; {
		n, err := r.Read(rows)
		for i := range n {
			if err := fn(at, &rows[i]); err != nil {
				return err
			}
			at++
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		clear(rows)
	}
}

// eachOf calls fn with the wanted rows of a row group.
func eachOf(group parquet.RowGroup, wanted []int64, fn func(row int64, r *Row) error) error {
	if len(wanted) == 0 {
		return nil
	}
	r := parquet.NewGenericRowGroupReader[Row](group)
	defer r.Close()
	at, rows := int64(0), make([]Row, rowsAtOnce)
	for len(wanted) > 0 {
		if wanted[0]-at >= rowsAtOnce || at == 0 {
			at = wanted[0]
			if err := r.SeekToRow(at); err != nil {
				return err
			}
		}
		n, err := r.Read(rows[:min(rowsAtOnce, wanted[len(wanted)-1]-at+1)])
		for i := range n {
			if len(wanted) > 0 && at == wanted[0] {
				if err := fn(at, &rows[i]); err != nil {
					return err
				}
				wanted = wanted[1:]
			}
			at++
		}
		if n == 0 && err != nil {
			return err
		}
		clear(rows)
	}
	return nil
}
