package couchbase

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/couchbase/gocb/v2"
)

// A directory is a document whose fields are names: of the lanes of a queue (its board), of workers, or of the records
// of a kind. The value is when the name was last entered. What is not listed is not found, so entries are as durable as
// tasks.

// enlist adds a name to a directory.
func (s *Store) enlist(ctx context.Context, in *gocb.Collection, directory, name string) error {
	for try := 0; ; try++ {
		err := s.again(ctx, func() error {
			_, err := in.MutateIn(directory, []gocb.MutateInSpec{gocb.UpsertSpec("`"+name+"`", s.now(ctx), nil)},
				&gocb.MutateInOptions{Context: ctx, StoreSemantic: gocb.StoreSemanticsUpsert, DurabilityLevel: s.durability})
			return err
		})
		if !spoilt(err) || try == 3 {
			return err
		}
		if _, err := s.listed(ctx, in, directory); err != nil { // rebuilds the directory
			return err
		}
	}
}

// strike removes a name from a directory if may agrees and the directory is unchanged since it was read. It passes to
// may when the name was last entered. It does nothing to a damaged directory.
func (s *Store) strike(
	ctx context.Context, in *gocb.Collection, directory, name string, may func(entered int64) (bool, error),
) error {
	return until(ctx, func(int) (bool, error) {
		raw, cas, err := s.get(ctx, in, directory)
		if raw == nil || err != nil {
			return true, err
		}
		names, damage := namesIn(directory, raw)
		if _, is := names[name]; !is || damage != nil {
			return true, nil
		}
		if ok, err := may(names[name]); !ok || err != nil {
			return true, err
		}
		err = s.mutate(ctx, in, directory, cas, gocb.RemoveSpec("`"+name+"`", nil))
		return err == nil, refusal(err)
	})
}

// forget removes the name of a document from a directory in the collection meta, unless the document exists again. The
// creator of a document enlists it before and after creating it. So forget sees the new document, or fails because the
// directory has changed, or the creator enlists the name after it was removed.
func (s *Store) forget(ctx context.Context, r ref, directory, name string) error {
	return s.strike(ctx, s.meta, directory, name, func(int64) (bool, error) {
		is, err := s.read(ctx, r)
		return !is.exists(), err
	})
}

// exists reports whether a document is a record that was not deleted, or a worker that may hold tasks.
func (d *doc) exists() bool {
	if d == nil {
		return false
	}
	if w, is := d.body.(*worker); is {
		return !w.Combed
	}
	return d.body.(*record).Body != nil
}

// listed returns the names in a directory, in order. It rebuilds a damaged directory.
func (s *Store) listed(ctx context.Context, in *gocb.Collection, directory string) (listed []string, err error) {
	err = until(ctx, func(int) (bool, error) {
		raw, cas, err := s.get(ctx, in, directory)
		if raw == nil || err != nil {
			return true, err
		}
		names, damage := namesIn(directory, raw)
		if damage != nil {
			return false, s.renew(ctx, in, directory, raw, cas, names, damage)
		}
		listed = slices.Sorted(maps.Keys(names))
		return true, nil
	})
	return listed, err
}

// namesIn decodes a directory. If it fails, the error is errDamaged, and it returns the names that could be read.
func namesIn(directory string, raw []byte) (map[string]int64, error) {
	var fields map[string]json.RawMessage
	err := decode(directory, raw, &fields)
	if err == nil && fields == nil {
		err = fmt.Errorf("document %s is %w: it is null", directory, errDamaged)
	}
	names := map[string]int64{}
	for name, entered := range fields {
		if strings.HasPrefix(directory, board("")) {
			if _, bad := strconv.ParseInt(name, 10, 16); bad != nil {
				err = fmt.Errorf("document %s is %w: %w", directory, errDamaged, bad)
				continue
			}
		}
		names[name], _ = strconv.ParseInt(string(entered), 10, 64)
	}
	return names, err
}

// renew keeps a copy of a damaged directory and, if it is unchanged, rebuilds it from the names that could be read and,
// except for boards, from the index. The sweep adds missing lanes to boards.
func (s *Store) renew(
	ctx context.Context, in *gocb.Collection, directory string, raw []byte, cas gocb.Cas, names map[string]int64,
	damage error,
) error {
	if err := s.setAside(ctx, in, directory, raw, damage, ""); err != nil {
		return err
	}
	if in == s.meta {
		known, err := s.namesOf(ctx, directory)
		if err != nil {
			return errors.Join(damage, err)
		}
		for _, name := range known {
			names[name] = s.now(ctx)
		}
	}
	_, err := in.Replace(directory, names, &gocb.ReplaceOptions{Context: ctx, Cas: cas, DurabilityLevel: s.durability})
	return refusal(err)
}

// namesOf returns the names that belong in a directory of workers or records, from the index.
func (s *Store) namesOf(ctx context.Context, directory string) (names []string, err error) {
	for _, prefix := range prefixesOf(directory) {
		last := len(prefix) - 1
		err := s.between(ctx, prefix, prefix[:last]+string(prefix[last]+1), func(id string, m json.RawMessage) error {
			var r record
			if directory == workerList {
				names = append(names, strings.TrimPrefix(id, prefix))
			} else if _ = json.Unmarshal(m, &r); recordList(r.Kind) == directory {
				names = append(names, id)
			}
			return nil
		})
		if err != nil {
			return names, err
		}
	}
	return names, nil
}

// prefixesOf returns the prefixes of the documents that a directory may list. Records of all kinds whose names are
// hashed have the same prefix.
func prefixesOf(directory string) []string {
	if directory == workerList {
		return []string{workerKey("")}
	}
	return []string{"r|" + strings.TrimPrefix(directory, recordList("")) + "|", "r|#"}
}

// spoilt reports whether a part of a document could not be changed because of the document's structure.
func spoilt(err error) bool {
	return isOf(err, gocb.ErrValueNotJSON, gocb.ErrPathMismatch)
}
