package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tuskqueue/tusk"
)

const (
	demoFewest    = 1000     // tasks that compute a SHA-256; blocks are used if there are few files
	demoMost      = 5000     // files
	demoLargest   = 32 << 20 // bytes of a file
	demoMostBytes = 1 << 30  // of all files
	demoBlockSize = 64 << 10
)

// demoFiles makes a task for every file below a folder, and notes what it left out.
func demoFiles(dir string) (tasks []demoArgs, notes []string, err error) {
	root, err := filepath.Abs(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("demo: %w", err)
	}
	if info, err := os.Stat(root); err != nil || !info.IsDir() {
		return nil, nil, usage("name a folder: tusk demo DIR", "%s is not a folder that can be read", quote(dir))
	}
	large, bytesLeft := 0, int64(demoMostBytes)
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() && entry.Name() == ".git" {
			return skipped(entry)
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		info, err := entry.Info()
		switch {
		case err != nil: // it was just deleted
		case len(tasks) == demoMost:
			notes = append(notes, fmt.Sprintf("%s has more than %d files: the others are left out", dir, demoMost))
			return fs.SkipAll
		case info.Size() > demoLargest || info.Size() > bytesLeft:
			large++
		default:
			bytesLeft -= info.Size()
			tasks = append(tasks, demoArgs{Name: demoSHA256, Path: path})
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("demo: %w", err)
	}
	if large > 0 {
		notes = append(notes, fmt.Sprintf("%d files are left out because they are large", large))
	}
	if few := len(tasks); few < demoFewest {
		notes = append(notes,
			fmt.Sprintf("files found in %s: %d; made-up blocks bring the tasks to %d", dir, few, demoFewest))
		for n := range demoFewest - few {
			tasks = append(tasks, demoArgs{Name: demoSHA256, Block: n + 1})
		}
	}
	return tasks, notes, nil
}

// skipped skips an entry that cannot be read, with everything in it.
func skipped(entry fs.DirEntry) error {
	if entry != nil && entry.IsDir() {
		return fs.SkipDir
	}
	return nil
}

// sha256 reads the file or block in the args. A file that cannot be read is discarded, because a retry would not
// help.
func (a demoArgs) sha256(ctx context.Context) (sum string, size int64, err error) {
	var from io.Reader = bytes.NewReader(bytes.Repeat([]byte{byte(a.Block)}, demoBlockSize))
	if a.Path != "" {
		file, err := os.Open(a.Path)
		if err != nil {
			return "", 0, tusk.Discard(err)
		}
		defer file.Close()
		from = file
	}
	hash := sha256.New()
	size, err = io.Copy(hash, io.LimitReader(readerOf(ctx, from), 2*demoLargest))
	if ctx.Err() != nil {
		return "", 0, context.Cause(ctx)
	}
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		return "", 0, tusk.Discard(err)
	}
	return hex.EncodeToString(hash.Sum(nil)), size, err
}

// readerOf returns a reader that stops when the context ends.
func readerOf(ctx context.Context, r io.Reader) io.Reader {
	return readFunc(func(p []byte) (int, error) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		return r.Read(p)
	})
}

type readFunc func(p []byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }
