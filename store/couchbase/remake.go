package couchbase

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// The document of a key that cannot be read is rebuilt from the tasks of the key. Without the document, no call can end
// one of these tasks or add another, except for calls that have read the document before. These have the time calm to
// finish, and what they have decided and left undone is written first. If it is uncertain which task holds the key, an
// operator has to decide, because there must never be two holders.

// calm is how long a damaged key is left alone, in multiples of patience.
const calm = 10

var errRemade = errors.New("the document of a key was damaged before all was stored, and was rebuilt without it")

// remake rebuilds the document of a key that cannot be read, unless another process has, and returns it.
func (s *Store) remake(ctx context.Context, name rules.KeyName) (made *doc, err error) {
	r := keyRef(name)
	err = until(ctx, func(int) (bool, error) {
		was := &key{}
		raw, cas, err := s.get(ctx, s.keys, r.ID)
		if err != nil {
			return false, err
		}
		damage := decode(r.ID, raw, was)
		if raw == nil || damage == nil {
			made, err = s.load(ctx, r)
			return true, err
		}
		if err := s.setAside(ctx, s.keys, r.ID, raw, damage, ""); err != nil {
			return false, err
		}
		since := int64(cas) / 1000
		if young := since + calm*s.patience.Microseconds() - s.now(ctx); young > 0 {
			if err := sleep(ctx, time.Duration(young)*time.Microsecond); err != nil {
				return false, fmt.Errorf("%w: it will be rebuilt shortly: %w", damage, err)
			}
			return false, nil
		}
		d, doubt := &doc{ref: r, body: &key{}, cas: cas}, ""
		if err = s.redoBefore(ctx, since); err == nil {
			doubt, err = s.findTasks(ctx, name, was, d.key())
		}
		if err != nil {
			return false, errors.Join(damage, err)
		}
		if doubt != "" {
			text, _ := encode(d.body)
			mend := fmt.Sprintf("say who holds the key (h) by %s ('%s', %s)",
				s.placed("UPSERT INTO `bucket`.`tusk`.`key` (KEY, VALUE) VALUES"), strings.ReplaceAll(r.ID, "'", "''"), text)
			err := s.setAside(ctx, s.keys, r.ID, raw, damage, mend)
			return false, errors.Join(fmt.Errorf("%w: %s: %s", damage, doubt, mend), err)
		}
		d.key().Remade = s.now(ctx)
		d.key().Born = d.key().Remade
		made = d
		return s.write(ctx, d)
	})
	return made, err
}

// redoBefore carries out the units that were decided before an instant and left undone, so that their tasks exist.
func (s *Store) redoBefore(ctx context.Context, before int64) error {
	for statement, c := range map[string]string{queryTodoKeys: inKey, queryTodoMeta: inMeta} {
		ids, err := query[string](ctx, s, statement, args{"before": before, "n": math.MaxInt32})
		if err != nil {
			return err
		}
		err = each(len(ids), func(i int) error {
			d, err := s.read(ctx, ref{c, ids[i]})
			if err == nil && d != nil && d.header().Unit != nil {
				_, err = s.redo(ctx, d)
			}
			return s.passing(err)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// findTasks fills the document of a key from its tasks. If it is uncertain which task holds the key, doubt says why.
func (s *Store) findTasks(ctx context.Context, name rules.KeyName, was, is *key) (doubt string, err error) {
	text, a := queryList(&store.Filter{Key: name.Key})
	a["before"], a["n"] = "~", math.MaxInt32 // "~" is after all ids
	ids, err := query[string](ctx, s, text, a)
	if err != nil {
		return "", err
	}
	ids = append(ids, was.Holder, was.Awaiting)
	slices.Sort(ids)
	ids = slices.DeleteFunc(slices.Compact(ids), func(id string) bool { return idOf(id).IsZero() })
	docs, err := readEach(ctx, inTask, ids, s.peek) // load might need the key
	if err != nil {
		return "", err
	}
	is.Queue, is.Tenant, is.Key, is.Source = name.Queue, name.Tenant, name.Key, was.Source
	var holders, awaiting []string
	ended := int64(0)
	for _, d := range docs {
		if d == nil || (rules.KeyName{Queue: d.task().Queue, Tenant: d.task().Tenant, Key: d.task().Key}) != name {
			continue
		}
		switch t := d.task(); {
		case t.Awaits:
			awaiting = append(awaiting, d.ID)
			continue // it counts once it holds the key
		case !t.state().Finished():
			holders = append(holders, d.ID)
		case t.Finished > ended:
			is.Ended, ended = d.ID, t.Finished
		}
		is.Tasks++
	}
	is.Holder, is.Awaiting = first(holders), first(awaiting)
	switch {
	case len(holders) > 1 || len(awaiting) > 1:
		doubt = "more than one of these tasks could hold its key: " + strings.Join(append(holders, awaiting...), ", ")
	case was.Pin != nil || was.Unit != nil:
		doubt = "a call was about to change it"
	}
	return doubt, nil
}

func first(ids []string) string { return cmp.Or(append(ids, "")...) }
