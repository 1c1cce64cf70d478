package archive

import (
	"context"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"gocloud.dev/blob"
)

// upload writes an object, which appears as a whole or not at all, and survives a power failure from then on.
func upload(ctx context.Context, b *blob.Bucket, path string, from io.Reader, o *blob.WriterOptions) error {
	if root := fs.FileInfo(nil); b.As(&root) {
		return uploadToFolder(ctx, b, path, from, o)
	}
	return b.Upload(ctx, path, from, o)
}

// uploadToFolder does by itself what Upload leaves undone in a folder. If the disk is full, Upload keeps the part that
// was written under the object's name; a writer whose context has ended keeps nothing. And Upload writes to no disk:
// that is left to the operating system.
func uploadToFolder(ctx context.Context, b *blob.Bucket, path string, from io.Reader, o *blob.WriterOptions) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var file *os.File
	o.BeforeWrite = func(as func(any) bool) error {
		as(&file)
		return nil
	}
	w, err := b.NewWriter(ctx, path, o)
	if err != nil {
		return err
	}
	_, err = w.ReadFrom(from)
	if err == nil && file != nil {
		err = file.Sync()
	}
	if err != nil {
		cancel()
		_ = w.Close() // it says that the context has ended
		return err
	}
	if err := w.Close(); err != nil || file == nil {
		return err
	}
	folder := filepath.Dir(file.Name())
	for range 1 + strings.Count(path, "/") { // the folders above may be new, too
		if err := syncFolder(folder); err != nil {
			return err
		}
		folder = filepath.Dir(folder)
	}
	return nil
}

// syncFolder writes the names in a folder to the disk.
func syncFolder(path string) error {
	if runtime.GOOS == "windows" { // it does so by itself
		return nil
	}
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	defer folder.Close()
	return folder.Sync()
}
