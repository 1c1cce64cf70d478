package postgres

import (
	"context"
	"errors"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/migrate"
)

// InFunctions puts the name of the schema of functions in place of tusk_fn.
func InFunctions(text string) string {
	return strings.ReplaceAll(text, "tusk_fn", programOf(DefaultSchema, functionText()))
}

// FunctionText is the text of all functions.
func FunctionText() string { return functionText() }

var changedColumns = regexp.MustCompile(`,\s+n\.changed_at, n\.changed\b|left join tusk\.note n on n\.id = s\.id`)

// NewProgram makes the engine of a program whose functions have another text, and whose view of tasks has fewer
// columns.
func NewProgram(pool *pgxpool.Pool, mark string) (*Store, error) {
	fewer := changedColumns.ReplaceAllString(functionText(), "")
	return newStore(pool, Options{}, fewer+"\n-- "+mark+"\n")
}

// DropAfter is for how long nobody has run a program when its functions are removed.
const DropAfter = migrate.DropAfter

// PingEvery lets a listener ask sooner whether it still hears.
func (s *Store) PingEvery(silence, within time.Duration) { s.pingEvery, s.pingWithin = silence, within }

// PackAll makes packs wherever there may be one.
func (s *Store) PackAll() { s.copyFrom, s.packLeast = 2, 2 }

// PruneLooks lets one call of Prune look at so many flushes.
func (s *Store) PruneLooks(n int) { s.pruneLooks = n }

// IdleLane sets after how long an idle lane is forgotten.
func (s *Store) IdleLane(d time.Duration) { s.idleLane = d }

// ResolveFor sets for how long one admission settles doubts.
func (s *Store) ResolveFor(d time.Duration) { s.resolveFor = d }

// HoldersFor sets for how long holders of turns are remembered.
func (s *Store) HoldersFor(d time.Duration) { s.holdersFor = d }

// LookTime is after how long a search goes no further.
const LookTime = lookTime

// PackedCopy returns the data of a COPY of tasks, and its statement.
func (s *Store) PackedCopy(tasks []store.NewTask) (data []byte, text string) {
	rows, name := rowsOf(tasks, surveyOf(tasks), s.packLeast)
	data, _ = io.ReadAll(rows)
	return data, s.sql[name]
}

// Statement returns the text of a statement by its name.
func (s *Store) Statement(name string) string { return s.sql[name] }

// Statements returns the texts of all statements.
func (s *Store) Statements() []string { return slices.Sorted(maps.Values(s.sql)) }

// CountStored counts the tasks of ids, as is done when an enqueue was not answered.
func (s *Store) CountStored(ctx context.Context, ids []store.ID) (n int64, err error) {
	err = s.query(ctx, "count_stored", func(raw [][]byte) error {
		n = int64Of(raw[0])
		return nil
	}, uuidsOf(ids))
	return n, err
}

// ListWhole lists tasks by one statement, which may read all.
func (s *Store) ListWhole(ctx context.Context, f store.Filter) ([]store.Task, error) {
	return s.list(ctx, f)
}

// Tidy tidies lanes that have more positions, or have been idle for more transactions, than these.
func (s *Store) Tidy(ctx context.Context, term int64, positions, idle int) error {
	lanes, err := s.untidy(ctx, term, positions, idle)
	for _, lane := range lanes {
		err = errors.Join(err, s.tidyLane(ctx, term, lane, positions, idle))
	}
	return err
}

// CatalogueNext writes down the next stretch of the log.
func (s *Store) CatalogueNext(ctx context.Context, term int64, least, rows int) (more bool, err error) {
	return s.catalogueNext(ctx, term, least, rows)
}

// LookAtAll has the next Rescue look at all leases.
func (s *Store) LookAtAll() { s.lookout.lookedAtAll(0) }

// CompletedTwice counts the tasks that more than one flush has completed.
func (s *Store) CompletedTwice(ctx context.Context) (n int64, err error) {
	err = s.pool.QueryRow(ctx, s.inSchema(`
		select count(*) from (
			select i.id from tusk.outcome o cross join lateral tusk_fn.ids_of(o.firsts, o.counts) i group by i.id having count(*) > 1) x`)).Scan(&n)
	return n, translate(err)
}

// Translate says what an error of the driver means.
func Translate(err error) error { return translate(err) }

// IsBusy reports whether a statement gave up waiting for others.
func IsBusy(err error) bool { return isBusy(err) }

// Rung reports whether anybody has been told of tasks of a queue, or is to be.
func (s *Store) Rung(queue string) bool {
	s.bell.mu.Lock()
	defer s.bell.mu.Unlock()
	r := s.bell.names[queue]
	return r != nil && (r.later || !r.at.IsZero())
}

// Trips is how many round trips the engine has made.
func (s *Store) Trips() int64 { return s.trips.Load() }

// Silent reports whether a connection is open, and nothing has come over it that was not read.
var Silent = silent

// Expected is how many tasks may still be claimed by this process's workers before others are told.
func (s *Store) Expected() int {
	s.near.mu.Lock()
	defer s.near.mu.Unlock()
	return len(s.near.expected)
}
