package archive

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/parquet-go/parquet-go"
	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	"github.com/tuskqueue/tusk/store"
)

// Tasks calls fn with each task of a file, and stops at its first error.
func (a *Archive) Tasks(ctx context.Context, f File, fn func(store.Task) error) error {
	local, err := f.download(ctx, a.bucket, a.dir)
	if err != nil {
		return err
	}
	defer discard(local)
	err = eachRow(local, func(r *Row) error {
		t, err := r.Task(f.Queue)
		if err != nil {
			return err
		}
		return fn(t)
	})
	if err != nil {
		return fmt.Errorf("read %s: %w", f.Path, err)
	}
	return nil
}

// download copies a file to the local disk.
func (f File) download(ctx context.Context, b *blob.Bucket, dir string) (*os.File, error) {
	local, err := os.CreateTemp(dir, "tusk-archive-*")
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	err = b.Download(ctx, f.Path, io.MultiWriter(local, sum), nil)
	if gcerrors.Code(err) == gcerrors.NotFound {
		err = fmt.Errorf("%w: it is missing: %w", errKeep, err)
	}
	if err == nil && hex.EncodeToString(sum.Sum(nil)) != f.SHA256 {
		err = fmt.Errorf("%w: its checksum is not that of the manifest", errKeep)
	}
	if err != nil {
		discard(local)
		return nil, fmt.Errorf("read %s: %w", f.Path, err)
	}
	return local, nil
}

// errKeep says that a file cannot be rewritten and stays as it is.
var errKeep = errors.New("the file cannot be written anew")

// columns are the columns of Row.
var columns = func() map[string]bool {
	known := map[string]bool{}
	for _, path := range parquet.SchemaOf(Row{}).Columns() {
		known[strings.Join(path, ".")] = true
	}
	return known
}()

// rewritable refuses a file with columns that this program does not know, since they would be lost.
func rewritable(local *os.File) error {
	info, err := local.Stat()
	if err != nil {
		return err
	}
	f, err := parquet.OpenFile(local, info.Size(), parquet.SkipBloomFilters(true), parquet.SkipPageIndex(true))
	if err != nil {
		return fmt.Errorf("%w: %w", errKeep, err)
	}
	for _, path := range f.Schema().Columns() {
		if name := strings.Join(path, "."); !columns[name] {
			return fmt.Errorf("%w: a newer program wrote it, with the column %q", errKeep, name)
		}
	}
	return nil
}

func discard(local *os.File) {
	_ = local.Close()
	_ = os.Remove(local.Name())
}

// eachRow calls fn with each row of a local file. fn may use the row until it returns.
func eachRow(local *os.File, fn func(*Row) error) error {
	if _, err := local.Seek(0, io.SeekStart); err != nil {
		return err
	}
	r := parquet.NewGenericReader[Row](local)
	defer r.Close()
	for rows := make([]Row, 256); ; {
		n, err := r.Read(rows)
		for i := range n {
			if err := fn(&rows[i]); err != nil {
				return err
			}
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
