package archive

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"gocloud.dev/blob"

	"github.com/tuskqueue/tusk/store"
)

const (
	spareMemory = 32 << 20 // bytes of rows in the unfinished row groups of all files
	mostFiles   = 64       // open at once
	batchTasks  = 2 << 20  // a batch ends after this number of tasks
)

// batch writes the files of one batch. Its local files are deleted with it.
type batch struct {
	id       store.ID
	bucket   *blob.Bucket
	dir      string
	announce func(ctx context.Context, path string) error // called before a file is uploaded

	open     map[Partition]*file
	calendar calendar
	done     []File
	tasks    int64
	waiting  int // bytes of rows in unfinished row groups
	full     bool
	receipts *os.File
	names    int
}

// newBatch begins a batch. Files are kept in dir until they are complete.
func newBatch(b *blob.Bucket, id store.ID, dir string, announce func(context.Context, string) error) (*batch, error) {
	receipts, err := os.CreateTemp(dir, "tusk-archive-*")
	if err != nil {
		return nil, err
	}
	return &batch{id: id, bucket: b, dir: dir, announce: announce, open: map[Partition]*file{}, receipts: receipts}, nil
}

// add adds the tasks of a page.
func (w *batch) add(ctx context.Context, due *store.Due) error {
	for i := range due.Tasks {
		if err := w.addTask(ctx, &due.Tasks[i]); err != nil {
			return err
		}
	}
	if due.Receipt == nil {
		return nil
	}
	if err := binary.Write(w.receipts, binary.BigEndian, uint32(len(due.Receipt))); err != nil {
		return err
	}
	_, err := w.receipts.Write(due.Receipt)
	return err
}

func (w *batch) addTask(ctx context.Context, t *store.Task) error {
	p := Partition{w.calendar.of(t.FinishedAt), t.Queue}
	f := w.open[p]
	if f == nil {
		if len(w.open) >= mostFiles {
			if err := w.end(ctx, w.largest((*file).written)); err != nil {
				return err
			}
		}
		var err error
		if f, err = newFile(w.dir, p); err != nil {
			return err
		}
		w.open[p] = f
	}
	before := f.size
	if err := f.add(rowOf(t)); err != nil {
		return err
	}
	w.waiting += f.size - before
	if w.tasks++; w.tasks >= batchTasks {
		w.full = true
	}
	if w.waiting > spareMemory {
		large := w.largest(func(f *file) int64 { return int64(f.size) })
		w.waiting -= large.size
		if err := large.flush(); err != nil {
			return err
		}
	}
	if f.size == 0 && f.written() >= fileTarget { // a row group has just ended
		w.full = true
		return w.end(ctx, f)
	}
	return nil
}

// largest returns the open file for which of returns the largest value.
func (w *batch) largest(of func(*file) int64) (largest *file) {
	for _, f := range w.open {
		if largest == nil || of(f) > of(largest) {
			largest = f
		}
	}
	return largest
}

// end closes a file and uploads it.
func (w *batch) end(ctx context.Context, f *file) error {
	w.waiting -= f.size
	about, err := f.close()
	if err != nil {
		return err
	}
	about.Path = f.partition.path(w.id, w.names)
	w.names++
	if err := w.announce(ctx, about.Path); err != nil {
		return err
	}
	if err := uploadFile(ctx, w.bucket, about.Path, f.spool); err != nil {
		return err
	}
	w.done = append(w.done, about)
	delete(w.open, f.partition)
	f.discard()
	return nil
}

// finish uploads all open files and the receipts, and returns all files.
func (w *batch) finish(ctx context.Context) ([]File, error) {
	for len(w.open) > 0 {
		if err := w.end(ctx, w.largest((*file).written)); err != nil {
			return nil, err
		}
	}
	if err := uploadFile(ctx, w.bucket, receiptPath(w.id), w.receipts); err != nil {
		return nil, err
	}
	slices.SortFunc(w.done, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	return w.done, nil
}

// discard deletes the local files.
func (w *batch) discard() {
	for _, f := range w.open {
		f.discard()
	}
	_ = w.receipts.Close()
	_ = os.Remove(w.receipts.Name())
}

// uploadFile copies a local file to an object.
func uploadFile(ctx context.Context, b *blob.Bucket, path string, from *os.File) error {
	if _, err := from.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := upload(ctx, b, path, from, &blob.WriterOptions{ContentType: "application/vnd.apache.parquet",
		BufferSize: 8 << 20, MaxConcurrency: 1}); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// mostReceipt is the largest size of the receipt of a page, in bytes.
const mostReceipt = 64 << 20

// eachReceipt calls fn with each receipt of a batch.
func eachReceipt(ctx context.Context, b *blob.Bucket, id store.ID, fn func(receipt []byte) error) error {
	r, err := b.NewReader(ctx, receiptPath(id), nil)
	if err != nil {
		return fmt.Errorf("read receipts: %w", err)
	}
	defer r.Close()
	for in := bufio.NewReader(r); ; {
		var n uint32
		err := binary.Read(in, binary.BigEndian, &n)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && n > mostReceipt {
			err = errors.New("they are damaged")
		}
		receipt := make([]byte, n)
		if err == nil {
			_, err = io.ReadFull(in, receipt)
		}
		if err != nil {
			return fmt.Errorf("read receipts: %w", err)
		}
		if err := fn(receipt); err != nil {
			return err
		}
	}
}
