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

// Partition is what files are apart by: the UTC day on which their tasks ended, and the queue.
type Partition struct {
	Day   string // 2006-01-02
	Queue string
}

// calendar names the UTC days of instants that mostly follow one another.
type calendar struct {
	number int64 // of days since 1970, of the latest
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

// path is that of a file of a batch, in the form of Hive.
func (p Partition) path(batch store.ID, n int) string {
	return "day=" + p.Day + "/queue=" + url.PathEscape(p.Queue) + "/" + batch.String() + "-" + strconv.Itoa(n) + ".parquet"
}

const (
	bloomBits   = 10       // of the Bloom filter, for each id: one id in a hundred is looked for in vain
	pageBytes   = 64 << 10 // of a column
	schemaKey   = "tusk.schema"
	queueKey    = "tusk.queue"
	writeRows   = 64        // at once
	writeMemory = 256 << 10 // most bytes of them
	groupRows   = 32 << 10  // most of a row group: what a look-up by id reads
	groupMemory = 16 << 20  // most bytes of its rows, as they are in memory
	fileTarget  = 128 << 20 // bytes after which a file is ended
)

// file is a Parquet file under way, on the local disk until it is whole. Rows are in the order in
// which they come; what of a row group is in memory is compressed.
type file struct {
	partition Partition
	spool     *os.File
	buffer    *bufio.Writer
	sum       hash.Hash
	parquet   *parquet.GenericWriter[Row]
	rows      []Row // to be written together
	bytes     int   // of them
	group     int   // rows of the row group
	size      int   // bytes of them
	groups    int   // written
	about     File
}

// newFile begins a file in a folder for such files.
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
		parquet.DeferBloomFiltersWithBuffers(parquet.NewBufferPool()), // beside the footer: both are read at once
		parquet.PageBufferSize(pageBytes),
		parquet.WriteBufferSize(0),
		parquet.CreatedBy("tusk", strconv.Itoa(SchemaVersion), ""),
		parquet.KeyValueMetadata(schemaKey, strconv.Itoa(SchemaVersion)),
		parquet.KeyValueMetadata(queueKey, p.Queue),
	)
	f.about = File{Day: p.Day, Queue: p.Queue, Lists: true}
	return f, nil
}

// add takes a row in.
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

// write gives the rows that wait to the row group.
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

// written is how many bytes the file has on the disk.
func (f *file) written() int64 { return f.parquet.Size() }

// close ends the file. What it returns says what is in it.
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

// discard forgets the file on the local disk.
func (f *file) discard() {
	_ = f.spool.Close()
	_ = os.Remove(f.spool.Name())
}

// File is what a manifest says of a file.
type File struct {
	Path       string           `json:"path"`
	Day        string           `json:"day"`
	Queue      string           `json:"queue"`
	Tasks      int64            `json:"tasks"`
	Bytes      int64            `json:"bytes"`
	Tail       int64            `json:"tail"` // bytes of its footer and what goes with it
	SHA256     string           `json:"sha256"`
	MinID      string           `json:"min_id"`
	MaxID      string           `json:"max_id"`
	Spans      spans            `json:"spans"`            // the seconds that its ids begin with
	Since      int64            `json:"since,omitempty"`  // the second before which Strays has all ids; 0: it says nothing
	Strays     strays           `json:"strays,omitempty"` // of ids that were made before
	From       time.Time        `json:"from"`             // when the first of its tasks ended
	Until      time.Time        `json:"until"`            // and the last
	States     map[string]int64 `json:"states"`
	Kinds      []string         `json:"kinds,omitempty"`    // sorted; none: more than most
	Tenants    []string         `json:"tenants,omitempty"`  // the same; "" is that of tasks without one
	Lists      bool             `json:"lists_payloads"`     // Payloads has all of them
	Payloads   []string         `json:"payloads,omitempty"` // the objects that its tasks refer to
	manyKind   bool
	manyTen    bool
	manyStrays bool
}

// mostNames is how many kinds and tenants a manifest names.
const mostNames = 100

// count takes a row of a row group into the account.
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

// nameOne adds a name to a sorted list, unless there are too many.
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
