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
// of a kind. Each name has the time when it was last entered. What is not listed is not found, so an entry is as
// durable as tasks are.

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

// strike removes a name from a directory that nobody has changed since may agreed; may is told when the name was last
// entered. A damaged directory is left to its next reader.
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

// forget removes the name of a document from a directory in the collection meta, unless the document has come back. The
// creator of a document enlists it before and after creating it. So forget sees the new document, or the directory has
// changed since forget read it, or the creator enlists the name again.
func (s *Store) forget(ctx context.Context, r ref, directory, name string) error {
	return s.strike(ctx, s.meta, directory, name, func(int64) (bool, error) {
		is, err := s.read(ctx, r)
		return !is.exists(), err
	})
}

// exists reports whether there is a record, or a worker that may hold tasks.
func (d *doc) exists() bool {
	if d == nil {
		return false
	}
	if w, is := d.body.(*worker); is {
		return !w.Combed
	}
	return d.body.(*record).Body != nil
}

// listed returns the names in a directory, in order. It first rebuilds a damaged directory.
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

// namesIn reads a directory. Its error is errDamaged; the names that could be read are returned anyway.
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

// renew sets a damaged directory aside and, if it is unchanged, rebuilds it from the names that could be read and those
// that an index knows. The sweep lists the lanes that a board lacks.
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

// namesOf returns the names that belong in the directory of workers or of a kind of records.
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

// prefixesOf returns how the documents that a directory lists begin. The names of some records are hashed, and those of
// other kinds are among them.
func prefixesOf(directory string) []string {
	if directory == workerList {
		return []string{workerKey("")}
	}
	return []string{"r|" + strings.TrimPrefix(directory, recordList("")) + "|", "r|#"}
}

// spoilt reports whether a document lacks the structure that a change to one of its parts needs.
func spoilt(err error) bool {
	return isOf(err, gocb.ErrValueNotJSON, gocb.ErrPathMismatch)
}
