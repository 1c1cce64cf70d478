// Package place opens the places that an archive can be in: a folder, and Amazon S3 or what
// speaks its protocol. It holds their drivers, so that package archive need not. It may touch
// neither tasks nor stores.
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

// patience is how long a store may move no byte.
const patience = 30 * time.Second

// Open opens a place by its URL:
//
//	file:///var/lib/tusk/archive    a folder, which is made when it is missing
//	s3://bucket?region=eu-west-1    S3; with endpoint=http://host:9000&use_path_style=true another server
//
// With prefix=a/b/ the archive is below that prefix. Credentials come from the environment, as
// the provider's own tools read them; a URL that carries some is refused.
func Open(ctx context.Context, location string) (*blob.Bucket, error) {
	u, err := url.Parse(location)
	if err != nil {
		return nil, errors.New("the archive's URL cannot be read") // it may hold a secret
	}
	if u.User != nil {
		return nil, errors.New("the archive's URL must not carry credentials: set them in the environment")
	}
	switch u.Scheme {
	case "file":
		return openFolder(u)
	case "s3":
		return openS3(ctx, u, patience)
	}
	return nil, fmt.Errorf("the archive's URL begins with %q: want file:// or s3://", u.Scheme)
}

// openFolder opens a folder. Files are written beside it and moved, so that none is ever seen
// in part, and have no companions with metadata, which readers would take for data.
func openFolder(u *url.URL) (*blob.Bucket, error) {
	if u.Host != "" {
		return nil, fmt.Errorf("the archive's URL names the host %q: a folder is file:///path, with three slashes", u.Host)
	}
	dir := filepath.FromSlash(u.Path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open archive: %w", err)
	}
	b, err := fileblob.OpenBucket(dir, &fileblob.Options{NoTempDir: true, Metadata: fileblob.MetadataDontWrite, CreateDir: true, DirFileMode: 0o700})
	if err != nil {
		return nil, fmt.Errorf("open archive: %w", err)
	}
	if prefix := u.Query().Get("prefix"); prefix != "" {
		return blob.PrefixedBucket(b, strings.TrimSuffix(prefix, "/")+"/"), nil
	}
	return b, nil
}
