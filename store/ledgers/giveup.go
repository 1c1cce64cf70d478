package ledgers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// Loss describes a ledger that is given up. What was stored in it is unknown.
type Loss struct {
	No      int
	Schema  string
	Server  string // where the new ledger is created
	Missing int    // tasks found nowhere that remaining ledgers need; they count as deleted from then on
	Letters int    // tasks in letters to the ledger; the new one gets them
}

// GiveUp replaces ledgers whose servers are lost for good by empty ones. on names the server for these, as in Open; if
// it is empty, the server with the fewest ledgers is used. If a lost server comes back, its ledger is an old copy,
// which nobody uses. All servers have to answer, so the lost ones must not be in the URL. If dry is set, GiveUp only
// reports what would be lost. After an interruption, the same call continues, or its error says which ledgers to leave
// out.
func (s *Store) GiveUp(ctx context.Context, dry bool, on string, numbers ...int) (lost []Loss, err error) {
	seen, err := s.lookGone(ctx, numbers)
	if err == nil {
		err = s.current(ctx, &seen, numbers)
	}
	var missing int
	var sent map[int]int // number of tasks in letters, by ledger
	if err == nil {
		missing, sent, err = s.lostWith(ctx, numbers)
	}
	var begun []schema
	if err == nil {
		begun, err = s.beginAll(ctx, dry, on, numbers)
	}
	if err != nil {
		return nil, fmt.Errorf("give up: %w", err)
	}
	for i, one := range begun {
		if !dry {
			if err := one.makeTables(ctx); err != nil {
				return lost, fmt.Errorf("give up: ledger %d: %w; to continue: %s", one.no, err, giveUpCommand(numbers[i:]))
			}
		}
		lost = append(lost, Loss{No: one.no, Schema: one.text, Server: one.at.name, Missing: missing, Letters: sent[one.no]})
	}
	if !dry {
		_, err = s.find(ctx)
	}
	return lost, err
}

// giveUpCommand returns the command that gives up ledgers.
func giveUpCommand(numbers []int) string {
	text := "tusk ledgers give-up"
	for _, no := range numbers {
		text += fmt.Sprint(" ", no)
	}
	return text
}

// lookGone looks at all servers. It fails unless all of them answer and the ledgers are gone.
func (s *Store) lookGone(ctx context.Context, numbers []int) (seen looked, err error) {
	seen, err = s.look(ctx)
	if err == nil && seen.err != nil {
		err = notGone(seen.err)
	}
	if err != nil {
		return seen, err
	}
	for _, no := range numbers {
		if err := seen.isGone(no, numbers); err != nil {
			return seen, fmt.Errorf("ledger %d: %w", no, err)
		}
	}
	return seen, nil
}

// beginAll creates the schemas of ledgers again, without tables. If dry is set, it only returns what it would create.
// Other commands have to wait meanwhile. So it makes no tables, which may take long.
func (s *Store) beginAll(ctx context.Context, dry bool, on string, numbers []int) (begun []schema, err error) {
	if !dry {
		unlock, err := s.lockServers(ctx)
		if err != nil {
			return nil, err
		}
		defer unlock()
	}
	seen, err := s.lookGone(ctx, numbers) // another command may have begun them meanwhile
	if err != nil {
		return nil, err
	}
	for _, no := range numbers {
		one, err := s.beginAnew(ctx, &seen, dry, on, no)
		if err != nil {
			return nil, fmt.Errorf("ledger %d: %w", no, err)
		}
		begun = append(begun, one)
	}
	return begun, nil
}

// notGone returns the error for a server that does not answer but may come back.
func notGone(err error) error {
	return fmt.Errorf("all servers have to answer: take those that are gone for good out of the URL: %w", err)
}

// lockServers excludes other commands that change where ledgers are. It locks every server, because two commands could
// create a ledger on different ones.
func (s *Store) lockServers(ctx context.Context) (unlock func(), err error) {
	var locked []*pgx.Conn
	unlock = func() {
		for _, c := range locked {
			_ = c.Close(context.WithoutCancel(ctx))
		}
	}
	for _, at := range s.servers() {
		c, err := postgres.Dial(ctx, at.pool)
		if err != nil {
			unlock()
			return nil, notGone(fmt.Errorf("%s: %w", at.name, err))
		}
		locked = append(locked, c)
		if _, err = c.Exec(ctx, "begin"); err == nil {
			err = at.lock(ctx, c)
		}
		if err != nil {
			unlock()
			return nil, err
		}
	}
	return unlock, nil
}

// beginAnew creates the schema of a ledger again, unless an earlier call has done so, and returns it.
func (s *Store) beginAnew(ctx context.Context, seen *looked, dry bool, on string, no int) (one schema, err error) {
	if begun := seen.on[no]; len(begun) > 0 {
		if one = begun[0]; on != "" && !one.at.is(on) {
			err = fmt.Errorf("an earlier call has begun it on %s: repeat that, or name this server", one.at.name)
		}
		return one, err
	}
	at, err := s.roomiest(ctx, seen, on)
	if err != nil {
		return one, err
	}
	one = schema{name: seen.nameOf(no), at: at, epoch: max(seen.nextEpoch(no), time.Now().Unix())}
	one.text = one.in(s.o.Schema)
	seen.on[no] = []schema{one} // counts when the next server is chosen
	if !dry {
		err = one.begin(ctx)
	}
	return one, err
}

// makeTables makes the tables of a ledger that was begun anew.
func (one schema) makeTables(ctx context.Context) error {
	engine, err := postgres.New(ctx, one.at.pool, postgres.Options{Schema: one.text})
	if err != nil {
		return err
	}
	_, err = engine.Migrate(ctx, -1)
	return errors.Join(err, engine.Close())
}

// begin creates an empty schema. Its epoch is the current time in seconds. The epoch of the lost ledger is not known
// here. It is lower, because it counts fences and openings, or started with the time when the ledger was given up
// before.
func (one schema) begin(ctx context.Context) error {
	return pgx.BeginFunc(ctx, one.at.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "create schema "+one.text)
		if err == nil {
			_, err = tx.Exec(ctx, epochText(one.text, one.epoch))
		}
		return err
	})
}

// current fails unless the ledgers that stay are usable and have the tables of this program version, as the new ones
// will.
func (s *Store) current(ctx context.Context, seen *looked, gone []int) error {
	all, err := s.ledgers(ctx)
	if err != nil {
		return err
	}
	var stay []*ledger
	for _, l := range all {
		if slices.Contains(gone, l.no) {
			continue
		}
		if problem := seen.problem(l.no); problem != nil {
			return fmt.Errorf("ledger %d cannot be used either: name it, too, or first bring it back: %w", l.no, problem)
		}
		if !seen.on[l.no][0].made {
			return fmt.Errorf("an earlier call has begun ledger %d, which has no tables yet: name it, too: %s",
				l.no, giveUpCommand(slices.Sorted(slices.Values(append(slices.Clone(gone), l.no)))))
		}
		stay = append(stay, l)
	}
	if len(stay) == 0 {
		return errors.New("no ledger would stay: drop the schemas, and run tusk migrate up for a new queue")
	}
	steps, err := stepsOf(ctx, stay)
	if err == nil && slices.ContainsFunc(steps, func(one store.Migration) bool { return one.AppliedAt.IsZero() }) {
		err = errors.New("the other ledgers have the tables of an older version of tusk: use that version")
	}
	return err
}

// isGone fails unless a ledger is on no server, or has only a schema without tables because a GiveUp was cut off. named
// are all ledgers to give up.
func (l *looked) isGone(no int, named []int) error {
	if err := l.number(no); err != nil {
		return err
	}
	lowest, whole := l.lastStep()
	is := func(one schema) bool { return one.no == no }
	switch on := l.on[no]; {
	case no >= lowest && !whole:
		return fmt.Errorf("it may not be made yet: tusk migrate up --ledgers %d", l.of)
	case len(on) == 1 && on[0].made:
		err := fmt.Errorf("it is on %s, which answers", on[0].at.name)
		rest := slices.DeleteFunc(slices.Clone(named), func(other int) bool {
			return len(l.on[other]) == 1 && l.on[other][0].made
		})
		if len(rest) > 0 {
			err = fmt.Errorf("%w: leave it out: %s", err, giveUpCommand(rest))
		}
		return err
	case len(on) > 1 || slices.ContainsFunc(l.fenced, is) || slices.ContainsFunc(l.asleep, is):
		return l.problem(no)
	}
	return nil
}

// nameOf returns the name of a ledger. The names of all ledgers that were added in one step contain the same total.
func (l *looked) nameOf(no int) name {
	if no < l.keys {
		return name{no, l.keys, l.keys}
	}
	n := name{no, l.of, l.keys}
	for _, one := range l.every() {
		if one.of > no && one.of < n.of {
			n.of = one.of
		}
	}
	return n
}

// roomiest returns the server with the fewest ledgers, or the named one.
func (s *Store) roomiest(ctx context.Context, seen *looked, named string) (at *server, err error) {
	all, err := s.primaries(ctx)
	if err != nil {
		return nil, err
	}
	if named != "" {
		all = slices.DeleteFunc(all, func(at *server) bool { return !at.is(named) })
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("the URL has no server %s that can be written to: add it there", named)
	}
	count := map[*server]int{}
	for _, on := range seen.on {
		for _, one := range on {
			count[one.at]++
		}
	}
	return slices.MinFunc(all, func(a, b *server) int { return count[a] - count[b] }), nil
}

// lostWith counts the tasks that remaining ledgers need and that are found nowhere, and the tasks in their letters to
// each lost ledger.
func (s *Store) lostWith(ctx context.Context, gone []int) (missing int, sent map[int]int, err error) {
	all, err := s.ledgers(ctx)
	if err != nil {
		return 0, nil, err
	}
	sealed, needed := map[store.ID]bool{}, map[store.ID]bool{} // tasks in letters, and needed tasks
	sent = map[int]int{}
	for _, l := range all {
		if slices.Contains(gone, l.no) {
			continue
		}
		mail, err := s.postedIn(ctx, l, len(all))
		if err != nil {
			return 0, nil, err
		}
		for _, p := range mail {
			for _, id := range p.tasks {
				sealed[id] = true
			}
			for _, no := range gone {
				if p.to.has(no) {
					sent[no] += len(p.tasks)
				}
			}
		}
		ids, err := needsIn(ctx, l)
		if err != nil {
			return 0, nil, err
		}
		for _, id := range ids {
			needed[id] = true
		}
	}
	var ids []store.ID
	for id := range needed {
		if !sealed[id] {
			ids = append(ids, id)
		}
	}
	found, _ := s.whereAre(ctx, all, ids) // fails because lost ledgers do not answer
	return len(ids) - len(found), sent, nil
}

// postedIn reads the letters in a ledger.
func (s *Store) postedIn(ctx context.Context, from *ledger, of int) (all []posted, err error) {
	ids, err := lettersIn(ctx, from)
	if err != nil {
		return nil, err
	}
	for part := range slices.Chunk(ids, store.MaxPage) {
		mail, err := ask(ctx, from, func(ctx context.Context, e *postgres.Store) ([]store.Task, error) {
			return e.List(ctx, store.Filter{IDs: part, Limit: store.MaxPage})
		})
		if err != nil {
			return nil, err
		}
		for i := range mail {
			l, err := read(&mail[i])
			if err != nil {
				return nil, err
			}
			all = append(all, s.postedOf(&l, of))
		}
	}
	return all, nil
}

// needsIn returns the unfinished tasks of other ledgers that a ledger's tasks need.
func needsIn(ctx context.Context, l *ledger) (ids []store.ID, err error) {
	var after store.ID
	for {
		page, err := ask(ctx, l, func(ctx context.Context, e *postgres.Store) ([]postgres.Elsewhere, error) {
			needs, err := postgres.NeedsOf(ctx, []*postgres.Store{e}, []store.ID{after}, farPage, letters)
			if err != nil {
				return nil, err
			}
			return needs[0].Of, nil
		})
		if err != nil {
			return nil, err
		}
		for _, one := range page {
			if after = one.ID; !one.Announced && one.State != 0 && !one.State.Finished() {
				ids = append(ids, one.ID)
			}
		}
		if len(page) < farPage {
			return ids, nil
		}
	}
}
