package archive

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"

	"gocloud.dev/blob"

	"github.com/tuskqueue/tusk/internal/payload"
)

// Problem is a defect of an archive.
type Problem struct {
	Path string `json:"path"`
	Text string `json:"problem"`
}

// Verified sums up what Verify has read.
type Verified struct {
	Files    int       `json:"files"`
	Tasks    int64     `json:"tasks"`
	Bytes    int64     `json:"bytes"`
	Problems []Problem `json:"problems,omitempty"`
}

// Verify reads all files and compares their checksums with the manifests. It calls tell for each of
// these files; tell may be nil. It also reports files that no manifest lists: a process left them
// when it died while writing, or is writing them now. A manifest that cannot be read is a problem,
// too: its files count as listed by none, and the manifests that it replaces count again.
func (a *Archive) Verify(ctx context.Context, tell func(f File)) (v Verified, err error) {
	all, err := a.readable(ctx, func(path string, err error) error {
		v.Problems = append(v.Problems, Problem{path, err.Error() + "; so its files are not listed"})
		return nil
	})
	if err != nil {
		return v, err
	}
	manifests := inForce(all)
	listed := map[string]bool{}
	for _, m := range manifests {
		if m.Open {
			v.Problems = append(v.Problems, Problem{manifestPath(m.Batch),
				"the batch has not ended: its tasks may still be in the database"})
		}
		for _, f := range m.Files {
			listed[f.Path] = true
			if problem := a.check(ctx, f); problem != "" {
				v.Problems = append(v.Problems, Problem{f.Path, problem})
			}
			if ctx.Err() != nil {
				return v, ctx.Err()
			}
			v.Files++
			v.Tasks += f.Tasks
			v.Bytes += f.Bytes
			if tell != nil {
				tell(f)
			}
		}
	}
	if err := a.verifyPayloads(ctx, manifests, &v); err != nil {
		return v, err
	}
	return v, each(ctx, a.bucket, "day=", func(o *blob.ListObject) error {
		if strings.HasSuffix(o.Key, ".parquet") && !listed[o.Key] {
			v.Problems = append(v.Problems, Problem{o.Key, "no manifest lists this file"})
		}
		return nil
	})
}

// verifyPayloads finds tasks whose large args or outputs are missing.
func (a *Archive) verifyPayloads(ctx context.Context, manifests []Manifest, v *Verified) error {
	there := map[string]bool{}
	err := each(ctx, a.bucket, payload.Prefix, func(o *blob.ListObject) error {
		there[o.Key] = true
		return nil
	})
	if err != nil {
		return err
	}
	for _, m := range manifests {
		for _, f := range m.Files {
			for _, name := range f.Payloads {
				if path := payload.Prefix + name; !there[path] {
					v.Problems = append(v.Problems, Problem{path, "it is missing, and a task of " + f.Path + " refers to it"})
				}
			}
		}
	}
	return nil
}

// check reads a file and describes what is wrong with it, if anything.
func (a *Archive) check(ctx context.Context, f File) string {
	r, err := a.bucket.NewReader(ctx, f.Path, nil)
	if err != nil {
		return "it cannot be read: " + err.Error()
	}
	defer r.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, r)
	switch got := hex.EncodeToString(sum.Sum(nil)); {
	case err != nil:
		return "it cannot be read: " + err.Error()
	case n != f.Bytes:
		return fmt.Sprintf("it has %d bytes, and the manifest says %d", n, f.Bytes)
	case got != f.SHA256:
		return "its checksum is not that of the manifest"
	}
	return ""
}
