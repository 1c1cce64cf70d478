package archive

import (
	"cmp"
	"context"
	"io"
	"slices"

	"github.com/parquet-go/parquet-go"
	"gocloud.dev/blob"
)

// object reads an object in parts. Loaded parts are in memory; reading anything else takes a
// request. One goroutine at a time may use it.
type object struct {
	ctx     context.Context
	archive *Archive
	path    string
	size    int64
	parts   []part
}

// part is a piece of an object.
type part struct {
	at   int64
	data []byte
}

// extent is the position of a piece of an object.
type extent struct{ from, until int64 }

// ReadAt implements io.ReaderAt.
func (o *object) ReadAt(p []byte, at int64) (int, error) {
	until := min(at+int64(len(p)), o.size)
	i := slices.IndexFunc(o.parts, func(x part) bool { return x.at <= at && until <= x.at+int64(len(x.data)) })
	if i < 0 {
		if err := o.load(extent{at, until}); err != nil {
			return 0, err
		}
		i = len(o.parts) - 1
	}
	n := copy(p, o.parts[i].data[at-o.parts[i].at:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// load reads a piece with one request, unless it is in memory.
func (o *object) load(e extent) error {
	if slices.ContainsFunc(o.parts, func(x part) bool { return x.at <= e.from && e.until <= x.at+int64(len(x.data)) }) {
		return nil
	}
	o.archive.requests.Add(1)
	r, err := o.archive.bucket.NewRangeReader(o.ctx, o.path, e.from, e.until-e.from, &blob.ReaderOptions{})
	if err != nil {
		return err
	}
	defer r.Close()
	data := make([]byte, e.until-e.from)
	if _, err := io.ReadFull(r, data); err != nil {
		return err
	}
	o.parts = append(o.parts, part{e.from, data})
	return nil
}

// forget frees the memory of the parts, unless the object is so small that it was read as a whole.
func (o *object) forget() {
	whole := func(x part) bool { return x.at == 0 && int64(len(x.data)) == o.size }
	o.parts = slices.DeleteFunc(o.parts, func(x part) bool { return !whole(x) })
}

// opened is a file whose footer has been read.
type opened struct {
	object  *object
	parquet *parquet.File
}

// tail is how much of a file is read with its footer if the manifest does not say how large that
// part is. If it is too small, a footer takes another request.
const tail = 1 << 20

// open reads the footer of a file and the Bloom filters with one request.
func (a *Archive) open(ctx context.Context, f File) (*opened, error) {
	size := f.Tail
	if size == 0 || f.Bytes <= tail {
		size = tail
	}
	o := &object{ctx: ctx, archive: a, path: f.Path, size: f.Bytes}
	if err := o.load(extent{max(f.Bytes-size, 0), f.Bytes}); err != nil {
		return nil, err
	}
	file, err := parquet.OpenFile(o, f.Bytes, parquet.SkipMagicBytes(true), parquet.PrefetchBloomFilters(true))
	if err != nil {
		return nil, err
	}
	return &opened{object: o, parquet: file}, nil
}

// gap is how far apart two pieces may be that one request reads.
const gap = 256 << 10

// load reads the pages of row groups: all columns, or the given ones. Neighbouring groups take one
// request.
func (o *opened) load(groups []int, columns ...string) error {
	var want []extent
	for _, group := range groups {
		chunks := o.parquet.Metadata().RowGroups[group].Columns
		for i := range chunks {
			c := &chunks[i].MetaData
			if len(columns) > 0 && !slices.Contains(columns, c.PathInSchema[0]) {
				continue
			}
			begin := c.DataPageOffset
			if d := c.DictionaryPageOffset; d > 0 && d < begin {
				begin = d
			}
			want = append(want, extent{begin, begin + c.TotalCompressedSize})
		}
	}
	slices.SortFunc(want, func(a, b extent) int { return cmp.Compare(a.from, b.from) })
	for i := 0; i < len(want); {
		e := want[i]
		for i++; i < len(want) && want[i].from-e.until <= gap; i++ {
			e.until = max(e.until, want[i].until)
		}
		if err := o.object.load(e); err != nil {
			return err
		}
	}
	return nil
}

// column returns the number of a column, or -1 if the file has none of that name.
func (o *opened) column(name string) int {
	c, ok := o.parquet.Schema().Lookup(name)
	if !ok {
		return -1
	}
	return c.ColumnIndex
}

// mayHave reports whether a text column may have a value in a row group, as far as the statistics
// tell.
func (o *opened) mayHave(group parquet.RowGroup, column int, value string) bool {
	if column < 0 {
		return true
	}
	chunk, is := group.ColumnChunks()[column].(*parquet.FileColumnChunk)
	if !is {
		return true
	}
	low, high, ok := chunk.Bounds()
	if !ok {
		return chunk.NullCount() < chunk.NumValues()
	}
	return string(low.ByteArray()) <= value && value <= string(high.ByteArray())
}
