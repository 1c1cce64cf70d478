package archive

import (
	"container/list"
	"context"
	"io"
	"slices"
	"sync"

	"github.com/parquet-go/parquet-go"
)

// openFile is a file in the archive whose footer is cached. One goroutine at a time may use it.
type openFile struct {
	mu sync.Mutex
	*opened
	path, sha string
	weight    int64 // approximate memory in bytes
}

// mostKept is roughly how many bytes of footers and Bloom filters an Archive caches.
const mostKept = 48 << 20

// footer returns a file with its footer, from the cache if the file is the same as before.
func (a *Archive) footer(ctx context.Context, f File) (*openFile, error) {
	a.footerMu.Lock()
	if e := a.footers[f.Path]; e != nil && e.Value.(*openFile).sha == f.SHA256 {
		a.recent.MoveToFront(e)
		a.footerMu.Unlock()
		return e.Value.(*openFile), nil
	}
	a.footerMu.Unlock()
	read, err := a.open(ctx, f)
	if err != nil {
		return nil, err
	}
	o := &openFile{opened: read, path: f.Path, sha: f.SHA256, weight: 16<<10 + 2*min(f.Tail, f.Bytes)}
	a.footerMu.Lock()
	defer a.footerMu.Unlock()
	if old := a.footers[f.Path]; old != nil {
		a.forget(old)
	}
	a.footers[f.Path] = a.recent.PushFront(o)
	for a.kept += o.weight; a.kept > mostKept && a.recent.Len() > 1; {
		a.forget(a.recent.Back())
	}
	return o, nil
}

// forget removes a footer from the cache.
func (a *Archive) forget(e *list.Element) {
	o := a.recent.Remove(e).(*openFile)
	a.kept -= o.weight
	if a.footers[o.path] == e {
		delete(a.footers, o.path)
	}
}

// rowOf returns the row of an id. It begins with the row group that the manifest names, if it names
// one. The error is ErrNotFound if the file does not have the id.
func (a *Archive) rowOf(ctx context.Context, f File, id string) (*Row, error) {
	o, err := a.footer(ctx, f)
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.object.ctx = ctx
	defer func() { o.object.parts = nil }()
	column, groups := o.column("id"), o.parquet.RowGroups()
	may, err := o.groupsOf(column, id)
	if err != nil {
		return nil, err
	}
	if named, is := f.Strays.group(id); is && slices.Contains(may, named) {
		may = append([]int{named}, slices.DeleteFunc(may, func(i int) bool { return i == named })...)
	}
	for n, i := range may {
		try := may[n : n+1]
		if n+1 < len(may) && may[n+1] == i+1 { // they overlap a little, and one request reads both
			try = may[n : n+2]
		}
		if err := o.load(try); err != nil {
			return nil, err
		}
		row, err := rowIn(groups[i], column, id)
		if row != nil || err != nil {
			return row, err
		}
	}
	return nil, ErrNotFound
}

// groupsOf returns the row groups that may have an id, by their bounds and Bloom filters.
func (o *opened) groupsOf(column int, id string) (may []int, err error) {
	for i, group := range o.parquet.RowGroups() {
		if !o.mayHave(group, column, id) {
			continue
		}
		if filter := group.ColumnChunks()[column].BloomFilter(); filter != nil {
			if has, err := filter.Check(parquet.ValueOf(id)); err != nil {
				return nil, err
			} else if !has {
				continue
			}
		}
		may = append(may, i)
	}
	return may, nil
}

// rowIn returns the row of an id in a row group, or nil if the group does not have it.
func rowIn(group parquet.RowGroup, column int, id string) (*Row, error) {
	at, err := placeIn(group.ColumnChunks()[column], id)
	if err != nil || at < 0 {
		return nil, err
	}
	r := parquet.NewGenericRowGroupReader[Row](group)
	defer r.Close()
	if err := r.SeekToRow(at); err != nil {
		return nil, err
	}
	rows := make([]Row, 1)
	if n, err := r.Read(rows); n == 0 {
		return nil, err
	}
	return &rows[0], nil
}

// placeIn returns the number of the row that has an id, or -1 if none has it.
func placeIn(ids parquet.ColumnChunk, id string) (int64, error) {
	pages := ids.Pages()
	defer pages.Close()
	values := make([]parquet.Value, 1024)
	for row := int64(0); ; {
		page, err := pages.ReadPage()
		if err == io.EOF {
			return -1, nil
		}
		if err != nil {
			return 0, err
		}
		for in := page.Values(); ; {
			n, err := in.ReadValues(values)
			for _, v := range values[:n] {
				if string(v.ByteArray()) == id {
					return row, nil
				}
				row++
			}
			if err == io.EOF {
				break
			}
			if err != nil {
				return 0, err
			}
		}
	}
}
