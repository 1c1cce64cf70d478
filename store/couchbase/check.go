package couchbase

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/couchbase/gocb/v2"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/migrate"
)

// Limits beyond which Check warns.
const (
	oldestMajor, oldestMinor = 7, 1                   // the oldest supported server
	mostLag                  = time.Second            // of the indexes
	mostSpread               = 100 * time.Millisecond // of the nodes' clocks
	stillFor                 = 20 * time.Millisecond  // how long the time must stand still
)

// Check implements store.Checker.
func (s *Store) Check(ctx context.Context) (warnings []string, err error) {
	all, err := s.Migrations(ctx)
	if err != nil {
		return nil, err
	}
	done := int64(0)
	for _, m := range all {
		if !m.AppliedAt.IsZero() {
			done++
		}
	}
	if err := migrate.Fits(done, int64(len(all))); err != nil {
		return nil, err
	}
	checks := []func(context.Context) (string, error){s.checkDurability, s.checkVersion, s.checkIndexes,
		s.checkLag, s.checkClocks, s.checkTime, s.checkDamage}
	for _, check := range checks {
		warning, err := check(ctx)
		if err != nil { // a process can start although a check fails
			warning = fmt.Sprintf("not all could be checked: %v", err)
		}
		if warning != "" {
			warnings = append(warnings, warning)
		}
	}
	return warnings, nil
}

// version returns the server's version, such as 7.6.2-3721-enterprise.
func (s *Store) version(ctx context.Context) (string, error) {
	texts, err := query[string](ctx, s, queryVersion, nil)
	return strings.Join(texts, ""), err
}

func (s *Store) checkVersion(ctx context.Context) (string, error) {
	text, err := s.version(ctx)
	if err != nil {
		return "", err
	}
	var major, minor int
	if _, err := fmt.Sscanf(text, "%d.%d", &major, &minor); err != nil {
		return "", nil // an unknown format cannot be judged
	}
	if major < oldestMajor || major == oldestMajor && minor < oldestMinor {
		return fmt.Sprintf("Couchbase Server %s is older than %d.%d: upgrade it", text, oldestMajor, oldestMinor), nil
	}
	return "", nil
}

// checkIndexes finds indexes that are missing or not built.
func (s *Store) checkIndexes(ctx context.Context) (string, error) {
	online, err := query[string](ctx, s, queryIndexes, args{"bucket": s.bucket, "scope": s.scope, "state": "online"})
	if err != nil {
		return "", err
	}
	all, err := migrate.Read(migrations)
	var missing []string
	for _, m := range all {
		for statement := range strings.Lines(m.SQL) {
			if name, is := strings.CutPrefix(statement, "CREATE INDEX `"); is {
				if name, _, _ = strings.Cut(name, "`"); !slices.Contains(online, name) {
					missing = append(missing, name)
				}
			}
		}
	}
	if len(missing) == 0 || err != nil {
		return "", err
	}
	slices.Sort(missing)
	return fmt.Sprintf("these indexes are missing or not online: %s; build them, or create them with the statements of "+
		"'tusk migrate up --dry-run --show-sql'", strings.Join(missing, ", ")), nil
}

// checkLag measures how long the indexes take to catch up with all writes.
func (s *Store) checkLag(ctx context.Context) (string, error) {
	begun := time.Now()
	_, err := query[struct{}](ctx, s, queryDue, args{"n": 1})
	if took := time.Since(begun); err == nil && took > mostLag {
		return fmt.Sprintf("the indexes needed %v to catch up with the writes: delayed tasks, lists and counts are late by "+
			"that; give the index service more memory or nodes", took.Round(time.Millisecond)), nil
	}
	return "", err
}

// checkClocks compares the clocks of the nodes by the CAS of their writes. The error of each bound is at most the time
// of one write, and reduces the difference, so a reported difference is certain.
func (s *Store) checkClocks(ctx context.Context) (string, error) {
	earliest, latest := int64(math.MaxInt64), int64(math.MinInt64)
	for i := range 16 { // documents of 16 vbuckets
		begun := time.Now()
		done, err := s.meta.Upsert(fmt.Sprintf("clock|%d", i), 1, &gocb.UpsertOptions{Context: ctx})
		if err != nil {
			return "", err
		}
		at := int64(done.Cas()) / 1000
		earliest, latest = min(earliest, at-begun.UnixMicro()), max(latest, at-time.Now().UnixMicro())
	}
	if apart := time.Duration(latest-earliest) * time.Microsecond; apart > mostSpread {
		return fmt.Sprintf("the clocks of the nodes are at least %v apart: synchronize them with NTP; if one was ahead and "+
			"has been set back, Tusk's time may stand still for that long", apart.Round(time.Millisecond)), nil
	}
	return "", nil
}

// checkTime finds out whether the engine's time stands still: while a node's clock is behind the CAS of an earlier
// write, the CAS of each write is only one more than the last.
func (s *Store) checkTime(ctx context.Context) (string, error) {
	first, err := s.meta.Upsert(clockKey, 1, &gocb.UpsertOptions{Context: ctx})
	if err != nil {
		return "", err
	}
	begun := time.Now()
	time.Sleep(stillFor)
	took := time.Since(begun)
	second, err := s.meta.Upsert(clockKey, 1, &gocb.UpsertOptions{Context: ctx})
	if err != nil || time.Duration(second.Cas()-first.Cas()) > took/2 {
		return "", err
	}
	ahead := time.Until(time.Unix(0, int64(second.Cas()))).Round(time.Second)
	return fmt.Sprintf("Tusk's time stands still, because the clock of a node was set back: until the node's clock has "+
		"caught up, no delay ends and no dead worker is noticed; Tusk's time is %v ahead of this machine's clock; wait "+
		"that long, or set the node's clock forward again and have NTP slow it down instead", ahead), nil
}

// Examine implements store.Examiner.
func (s *Store) Examine(ctx context.Context) (store.Health, error) {
	h := store.UnknownHealth()
	version, err := s.version(ctx)
	l, wrong := s.readLeader(ctx)
	if err = cmp.Or(err, wrong); err != nil {
		return h, fmt.Errorf("examine: %w", err)
	}
	now := s.now(ctx)
	h.Now, h.Server = instant(now), "Couchbase Server "+version
	h.Leader = store.Leader{Term: l.Term, Held: l.Holder != "" && now < l.Expires, Renewed: instant(l.Renewed)}
	return h, nil
}
