package archive

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/tuskqueue/tusk/store"
)

// Partition is what separates files: the UTC day on which their tasks ended, and the queue.
type Partition struct {
	Day   string // 2006-01-02
	Queue string
}

// calendar names the UTC days of instants, and is fast if consecutive instants are mostly on the
// same day.
type calendar struct {
	number int64 // days since 1970 of the latest instant
	name   string
}

// of returns the day of an instant.
func (c *calendar) of(at time.Time) string {
	const seconds = 24 * 60 * 60
	if number := at.Unix() / seconds; number != c.number || c.name == "" {
		c.number, c.name = number, at.UTC().Format(time.DateOnly)
	}
	return c.name
}

// path returns the path of a file of a batch, in Hive's layout.
func (p Partition) path(batch store.ID, n int) string {
	return "day=" + p.Day + "/queue=" + url.PathEscape(p.Queue) + "/" + batch.String() + "-" + strconv.Itoa(n) + ".parquet"
}

const (
	bloomBits   = 10       // of the Bloom filter, for each id: one false positive in a hundred
	pageBytes   = 64 << 10 // of a column
	schemaKey   = "tusk.schema"
	queueKey    = "tusk.queue"
	writeRows   = 64        // rows that are written together
	writeMemory = 256 << 10 // most bytes of such rows
	groupRows   = 32 << 10  // most rows of a row group, which is what a look-up by id reads
	groupMemory = 16 << 20  // most bytes of its rows in memory
	fileTarget  = 128 << 20 // bytes after which a file is closed
)

// file is an unfinished Parquet file, on the local disk until it is complete. Rows keep the order
// in which they were added. The part of a row group in memory is compressed.
type file struct {
	partition Partition
	spool     *os.File
	buffer    *bufio.Writer
	sum       hash.Hash
	parquet   *parquet.GenericWriter[Row]
	rows      []Row // to write together
	bytes     int   // of them
	group     int   // in the current row group
	size      int   // bytes of them
	groups    int   // row groups written
	about     File
}

// newFile begins a file in a directory for such files.
func newFile(dir string, p Partition) (*file, error) {
	spool, err := os.CreateTemp(dir, "tusk-archive-*")
	if err != nil {
		return nil, err
	}
	f := &file{partition: p, spool: spool, sum: sha256.New()}
	f.buffer = bufio.NewWriterSize(io.MultiWriter(spool, f.sum), 64<<10)
	f.parquet = parquet.NewGenericWriter[Row](f.buffer,
		parquet.Compression(&codec{}),
		parquet.BloomFilters(parquet.SplitBlockFilter(bloomBits, "id")),
		// Stored beside the footer, so that both are read at once.
		parquet.DeferBloomFiltersWithBuffers(parquet.NewBufferPool()),
		parquet.PageBufferSize(pageBytes),
		parquet.WriteBufferSize(0),
		parquet.CreatedBy("tusk", strconv.Itoa(SchemaVersion), ""),
		parquet.KeyValueMetadata(schemaKey, strconv.Itoa(SchemaVersion)),
		parquet.KeyValueMetadata(queueKey, p.Queue),
	)
	f.about = File{Day: p.Day, Queue: p.Queue, Lists: true}
	return f, nil
}

// add adds a row.
func (f *file) add(r Row) error {
	f.about.count(&r, f.groups)
	f.rows = append(f.rows, r)
	size := r.size()
	f.bytes, f.size = f.bytes+size, f.size+size
	if f.group++; f.group >= groupRows || f.size >= groupMemory {
		return f.flush()
	}
	if len(f.rows) >= writeRows || f.bytes >= writeMemory {
		return f.write()
	}
	return nil
}

// write passes the waiting rows to the row group.
func (f *file) write() error {
	if _, err := f.parquet.Write(f.rows); err != nil {
		return fmt.Errorf("write rows: %w", err)
	}
	clear(f.rows)
	f.rows, f.bytes = f.rows[:0], 0
	return nil
}

// flush ends the row group.
func (f *file) flush() error {
	if f.group == 0 {
		return nil
	}
	if err := f.write(); err != nil {
		return err
	}
	f.size, f.group, f.groups = 0, 0, f.groups+1
	return f.parquet.Flush()
}

// written returns how many bytes the file has on the disk.
func (f *file) written() int64 { return f.parquet.Size() }

// close closes the file and returns its description.
func (f *file) close() (File, error) {
	if err := errors.Join(f.flush(), f.buffer.Flush()); err != nil {
		return File{}, err
	}
	pages, err := f.spool.Seek(0, io.SeekEnd)
	if err := errors.Join(err, f.parquet.Close(), f.buffer.Flush()); err != nil {
		return File{}, err
	}
	size, err := f.spool.Seek(0, io.SeekEnd)
	f.about.endStrays()
	f.about.Bytes, f.about.Tail, f.about.SHA256 = size, size-pages, hex.EncodeToString(f.sum.Sum(nil))
	return f.about, err
}

// discard deletes the file from the local disk.
func (f *file) discard() {
	_ = f.spool.Close()
	_ = os.Remove(f.spool.Name())
}

// File describes a file in a manifest.
type File struct {
	Path       string           `json:"path"`
	Day        string           `json:"day"`
	Queue      string           `json:"queue"`
	Tasks      int64            `json:"tasks"`
	Bytes      int64            `json:"bytes"`
	Tail       int64            `json:"tail"` // size of its footer and of what is read with it
	SHA256     string           `json:"sha256"`
	MinID      string           `json:"min_id"`
	MaxID      string           `json:"max_id"`
	Spans      spans            `json:"spans"`            // the seconds that its ids begin with
	Since      int64            `json:"since,omitempty"`  // Strays has all ids made before this second; 0 if not
	Strays     strays           `json:"strays,omitempty"` // of ids made before Since
	From       time.Time        `json:"from"`             // when the first of its tasks ended
	Until      time.Time        `json:"until"`            // when the last one ended
	States     map[string]int64 `json:"states"`
	Kinds      []string         `json:"kinds,omitempty"`    // sorted; empty if there are more than mostNames
	Tenants    []string         `json:"tenants,omitempty"`  // likewise; "" stands for tasks without a tenant
	Lists      bool             `json:"lists_payloads"`     // Payloads is complete
	Payloads   []string         `json:"payloads,omitempty"` // objects that its tasks refer to
	manyKind   bool
	manyTen    bool
	manyStrays bool
}

// mostNames is how many kinds, and how many tenants, a manifest names at most.
const mostNames = 100

// count adds a row of a row group to the description.
func (f *File) count(r *Row, group int) {
	end := instant(r.FinishedAt)
	if f.Tasks == 0 || r.ID < f.MinID {
		f.MinID = r.ID
	}
	f.MaxID = max(f.MaxID, r.ID)
	made := secondOf(r.ID)
	f.Spans = f.Spans.add(made)
	f.startAt(end)
	if made < f.Since {
		f.stray(r.ID, group)
	}
	if f.Tasks == 0 || end.Before(f.From) {
		f.From = end
	}
	if end.After(f.Until) {
		f.Until = end
	}
	f.Tasks++
	if f.States == nil {
		f.States = map[string]int64{}
	}
	f.States[r.State]++
	f.Kinds = nameOne(f.Kinds, r.Kind, &f.manyKind)
	f.Tenants = nameOne(f.Tenants, r.Tenant, &f.manyTen)
	f.Payloads = append(f.Payloads, r.payloads()...)
}

// nameOne adds a name to a sorted list. It returns nil if there are too many names.
func nameOne(names []string, name string, many *bool) []string {
	if *many {
		return nil
	}
	at, known := slices.BinarySearch(names, name)
	if known {
		return names
	}
	if *many = len(names) == mostNames; *many {
		return nil
	}
	return slices.Insert(names, at, strings.Clone(name))
}
