// Package place opens the places that can hold an archive: a folder, Amazon S3 or a server with its
// protocol, Google Cloud Storage, and Azure Blob Storage. It contains their drivers, so that
// package archive need not. It accesses neither tasks nor databases.
package place

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"
)

const (
	patience = 30 * time.Second // how long an object store may go without moving a byte
	attempts = 3                // for each request
)

// Open opens a place by its URL:
//
//	file:///var/lib/tusk/archive    a folder, which is made if it is missing
//	s3://bucket?region=eu-west-1    S3; with endpoint=http://host:9000&use_path_style=true another one
//	gs://bucket                     Google Cloud Storage; with endpoint=http://host:4443&anonymous=true another one
//	azblob://container              Azure; with storage_account=name, and domain=host:10000&protocol=http another one
//
// With prefix=a/b/ the archive is below that prefix. Credentials come from the environment, as
// the provider's own tools read them; a URL that carries some is refused.
func Open(ctx context.Context, location string) (*blob.Bucket, error) {
	return open(ctx, location, patience)
}

// opener opens a bucket by its URL, from which the prefix has been removed. Its connections end
// when no byte moves on them for patience.
type opener func(ctx context.Context, u *url.URL, patience time.Duration) (*blob.Bucket, error)

var openers = map[string]opener{"file": openFolder, "s3": openS3, "gs": openGoogle, "azblob": openAzure}

func open(ctx context.Context, location string, patience time.Duration) (*blob.Bucket, error) {
	u, err := url.Parse(location)
	if err != nil {
		return nil, errors.New("the archive's URL cannot be read") // it may contain a secret
	}
	if u.User != nil {
		return nil, errors.New("the archive's URL must not carry credentials: set them in the environment")
	}
	by, known := openers[u.Scheme]
	switch {
	case u.Scheme == "":
		return nil, errors.New("the archive's URL has no scheme: want file:///folder, s3://, gs:// or azblob://")
	case !known:
		return nil, fmt.Errorf("the archive's URL begins with %q: want file://, s3://, gs:// or azblob://", u.Scheme)
	}
	q := u.Query()
	prefix := q.Get("prefix")
	q.Del("prefix")
	plain := *u
	plain.RawQuery = q.Encode()
	b, err := by(ctx, &plain, patience)
	if err != nil {
		return nil, fmt.Errorf("open archive: %w", err)
	}
	if prefix != "" {
		return blob.PrefixedBucket(b, strings.TrimSuffix(prefix, "/")+"/"), nil
	}
	return b, nil
}

// openFolder opens a folder. Files are written under another name and moved, so that none is ever
// seen in part. They have no companion files with metadata, which readers would take for data.
func openFolder(_ context.Context, u *url.URL, _ time.Duration) (*blob.Bucket, error) {
	if u.Host != "" {
		return nil, fmt.Errorf("the URL names the host %q: a folder is file:///path, with three slashes", u.Host)
	}
	dir := filepath.FromSlash(u.Path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return fileblob.OpenBucket(dir, &fileblob.Options{NoTempDir: true, Metadata: fileblob.MetadataDontWrite,
		CreateDir: true, DirFileMode: 0o700})
}
