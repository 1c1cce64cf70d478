package archive

import (
	"bytes"
	"context"
	"io"
	"sync"

	"github.com/parquet-go/parquet-go"
	"gocloud.dev/blob"
)

// openFile is a file in the archive whose footer is known. It is used by one goroutine at a
// time.
type openFile struct {
	mu      sync.Mutex
	object  *object
	parquet *parquet.File
	sha     string // of the File that was opened
	used    int64
}

// mostOpen is how many footers an Archive remembers.
const mostOpen = 64

// object reads an object in parts. What was asked for last is kept: the parts of a row group
// that a look-up needs lie side by side, and are fetched together.
type object struct {
	ctx    context.Context
	bucket *blob.Bucket
	path   string
	at     int64
	have   []byte
}

// ReadAt implements io.ReaderAt.
func (o *object) ReadAt(p []byte, at int64) (int, error) {
	if at < o.at || at+int64(len(p)) > o.at+int64(len(o.have)) {
		if err := o.fetch(at, int64(len(p))); err != nil {
			return 0, err
		}
	}
	n := copy(p, o.have[at-o.at:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// fetch reads a part by one request.
func (o *object) fetch(at, size int64) error {
	r, err := o.bucket.NewRangeReader(o.ctx, o.path, at, size, nil)
	if err != nil {
		return err
	}
	defer r.Close()
	o.at = at
	o.have, err = io.ReadAll(r)
	return err
}

// tail is how much of a file is read with its footer: with less, a footer takes another request.
const tail = 1 << 20

// open returns a file with its footer, from memory where it is the same as before.
func (a *Archive) open(ctx context.Context, f File) (*openFile, error) {
	a.mu.Lock()
	a.used++
	o := a.files[f.Path]
	if o != nil && o.sha == f.SHA256 {
		o.used = a.used
		a.mu.Unlock()
		return o, nil
	}
	a.mu.Unlock()
	object := &object{ctx: ctx, bucket: a.bucket, path: f.Path}
	if err := object.fetch(max(f.Bytes-tail, 0), tail); err != nil {
		return nil, err
	}
	file, err := parquet.OpenFile(object, f.Bytes, parquet.SkipBloomFilters(true))
	if err != nil {
		return nil, err
	}
	object.have = nil
	a.mu.Lock()
	defer a.mu.Unlock()
	o = &openFile{object: object, parquet: file, sha: f.SHA256, used: a.used}
	a.files[f.Path] = o
	if len(a.files) > mostOpen {
		oldest := f.Path
		for path, other := range a.files {
			if other.used < a.files[oldest].used {
				oldest = path
			}
		}
		delete(a.files, oldest)
	}
	return o, nil
}

// rowOf returns the row of an id. The error is ErrNotFound.
func (a *Archive) rowOf(ctx context.Context, f File, id string) (*Row, error) {
	o, err := a.open(ctx, f)
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.object.ctx = ctx
	defer func() { o.object.have = nil }()
	column, _ := o.parquet.Schema().Lookup("id")
	groups := o.parquet.RowGroups()
	var may []int
	for i, group := range groups {
		low, high, ok := group.ColumnChunks()[column.ColumnIndex].(*parquet.FileColumnChunk).Bounds()
		if !ok || bytes.Compare(low.ByteArray(), []byte(id)) <= 0 && bytes.Compare([]byte(id), high.ByteArray()) <= 0 {
			may = append(may, i)
		}
	}
	for _, i := range may {
		if len(may) > 1 { // a filter is read sooner than a group
			filter := groups[i].ColumnChunks()[column.ColumnIndex].BloomFilter()
			if there, err := filter.Check(parquet.ValueOf(id)); err != nil {
				return nil, err
			} else if !there {
				continue
			}
		}
		at, size := extent(o.parquet, i)
		if err := o.object.fetch(at, size); err != nil {
			return nil, err
		}
		row, err := rowIn(groups[i], column.ColumnIndex, id)
		if row != nil || err != nil {
			return row, err
		}
	}
	return nil, ErrNotFound
}

// extent is where the pages of a row group are.
func extent(f *parquet.File, group int) (at, size int64) {
	first, last := int64(-1), int64(0)
	for i := range f.Metadata().RowGroups[group].Columns {
		c := &f.Metadata().RowGroups[group].Columns[i].MetaData
		begin := c.DataPageOffset
		if d := c.DictionaryPageOffset; d > 0 && d < begin {
			begin = d
		}
		if first < 0 || begin < first {
			first = begin
		}
		last = max(last, begin+c.TotalCompressedSize)
	}
	return first, last - first
}

// rowIn returns the row of an id in a row group; nil: it has none.
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

// placeIn returns the number of the row that has an id; -1: none has.
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
