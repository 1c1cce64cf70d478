package tend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tuskqueue/tusk/internal/allot"
	"github.com/tuskqueue/tusk/store"
)

const (
	turnGroups = 5000 // groups that one round examines
	// The minimum number of waiting tasks that a round examines in all groups together, if there are that many.
	fewestIDs = 500
	// The maximum number of waiting tasks that a round examines in one group.
	mostHeads   = 2000
	grantBatch  = 1000
	settingsAge = time.Second // how soon changed limits take effect

	turnBusy = 5 * time.Millisecond   // between rounds while tasks wait
	turnIdle = 100 * time.Millisecond // while none waits
	// How long after a grant rounds come sooner, because short tasks give their turns back by then. This applies only
	// if hints do not come at once.
	turnSoon = 100 * time.Millisecond
)

// turns is what the leader remembers between two rounds.
type turns struct {
	read    time.Time // when the fields below were read
	limits  map[string]allot.Limits
	rates   map[string]*allot.Book
	term    int64          // for which rates were read
	workers map[string]int // concurrency of live workers, by queue
	parked  map[string]int // tasks that wait for a retry, by queue, where those keep their turn
	counted time.Time      // when parked was read
	shares  map[string]*allot.Shares
	ahead   map[string]*window
	weights map[string]map[store.ID]int // weights of waiting tasks in queues with rates, by queue

	// The queues whose turns could not be handed out, and when to retry. The error was logged once.
	failing map[string]time.Time

	// No queue uses turns, so nothing else was read.
	unused  bool
	heads   int           // how many waiting tasks of each group a round examines
	groups  int           // groups with waiting tasks in the last round
	took    time.Duration // of the last round
	granted time.Time     // when a turn was last granted
}

// turn hands out turns. If no task has a turn or waits for one, it rests until a hint.
func (l *Leader) turn(ctx context.Context, term int64, told bool) (time.Duration, error) {
	t := &l.turns
	if !told && (t.unused || l.prompt()) && !l.lately(term).Turns {
		return settingsAge, nil
	}
	began := time.Now()
	t.heads = max(t.heads, fewestIDs/(t.groups+1), 1)
	groups, err := l.store.Turns(ctx, term, turnGroups, t.heads)
	if err != nil {
		return 0, err
	}
	if time.Since(t.read) > settingsAge || t.unused && len(groups) > 0 {
		if err := l.readLimits(ctx, term, len(groups) > 0); err != nil {
			return 0, err
		}
	}
	if len(groups) == 0 && len(t.limits) == 0 {
		return settingsAge, nil // no queue uses turns
	}
	if t.groups = groupsThatWait(groups); t.groups == 0 && l.prompt() {
		return settingsAge, nil
	} else if t.groups == 0 {
		return turnIdle, nil
	}
	// A single slow round, such as one that also reads the limits, does not delay the next one.
	defer func() { t.took = time.Since(began) }()
	sum := round{all: len(groups) < turnGroups}
	for name, of := range byQueue(groups) {
		if time.Now().Before(t.failing[name]) {
			sum.all = false
			continue
		}
		r, err := l.share(ctx, term, name, allot.Waiting{Limits: t.limits[name], Groups: of, Heads: t.heads})
		if err != nil && (ctx.Err() != nil || errors.Is(err, store.ErrNotLeader) || store.IsForAll(err)) {
			return 0, fmt.Errorf("queue %s: %w", name, err)
		}
		l.shared(name, err)
		r.all = r.all && err == nil
		sum = round{sum.granted + r.granted, sum.short || r.short, sum.dry || r.dry, sum.all && r.all}
	}
	t.learn(sum.short)
	if time.Since(t.read) > settingsAge*3/4 { // now, so that the next round need not read them before it grants
		if err := l.readLimits(ctx, term, true); err != nil {
			return 0, err
		}
	}
	if sum.granted > 0 {
		t.granted = time.Now()
	}
	switch {
	// Hints announce new tasks that wait for a turn.
	case sum.all && l.prompt():
		return settingsAge, nil
	case sum.granted > 0 && sum.dry:
		// The next round grants more than this one.
		return turnBusy, nil
	case sum.granted > 0:
		// One chore may take at most half of the time.
		return max(turnBusy, time.Since(began)), nil
	}
	took := min(time.Since(began), t.took)
	if !l.prompt() && time.Since(t.granted) < turnSoon {
		return min(max(2*turnBusy, 4*took), turnIdle), nil
	}
	return min(max(4*turnBusy, 16*took), turnIdle), nil
}

// shared records whether the turns of a queue could be handed out. If not, the queue rests, and all others continue.
func (l *Leader) shared(queue string, err error) {
	t := &l.turns
	_, failed := t.failing[queue]
	switch {
	case err == nil:
		delete(t.failing, queue)
		return
	case !failed:
		l.o.Log.Warn("turn: the turns of a queue cannot be handed out, others go on", "queue", queue, "error", err)
	}
	if t.failing == nil {
		t.failing = map[string]time.Time{}
	}
	t.failing[queue] = time.Now().Add(settingsAge)
}

// round is the result of one round.
type round struct {
	granted int
	short   bool // more might have been granted if more tasks had been examined
	dry     bool // workers wait for turns while tasks also wait for them
	all     bool // every waiting task was granted a turn
}

// share hands out the turns of one queue. It stores what is used of the queue's rates before it grants the turns: if
// the leader dies in between, too few turns were granted, not too many.
func (l *Leader) share(ctx context.Context, term int64, name string, w allot.Waiting) (r round, err error) {
	t := &l.turns
	if t.shares[name] == nil {
		t.shares[name], t.ahead[name] = &allot.Shares{}, &window{}
	}
	held, waiting, full := 0, 0, false
	for _, g := range w.Groups {
		held, waiting, full = held+int(g.Held), waiting+len(g.Waiting), full || len(g.Waiting) >= w.Heads
	}
	r.all = waiting == 0
	ahead := t.ahead[name]
	// A task that is retried in an hour keeps no worker busy until then.
	busy := max(held-t.parked[name], 0)
	if w.Room = ahead.room(busy, t.workers[name]); w.Room <= 0 {
		return r, nil
	}
	usage := t.rates[name]
	if usage == nil {
		usage, _ = allot.OpenBook(name, nil)
		t.rates[name] = usage
	}
	if w.Weights, err = l.weigh(ctx, name, &w); err != nil {
		return r, err
	}
	now := l.now()
	var ids []store.ID
	ids, r.short = allot.Pick(w, t.shares[name], usage.Usage, now)
	if len(ids) == 0 {
		return r, nil
	}
	for _, id := range ids { // it may weigh nothing the next time
		delete(t.weights[name], id)
	}
	if w.Limits.Rated() {
		if err := l.remember(ctx, term, usage, &w, ids, now); err != nil {
			return r, err
		}
	}
	r.dry = ahead.dry && (r.short || waiting > len(ids))
	r.granted, err = l.grant(ctx, term, ids)
	ahead.given(r.granted)
	r.all = !full && r.granted == waiting
	return r, err
}

func (l *Leader) grant(ctx context.Context, term int64, ids []store.ID) (granted int, err error) {
	for part := range slices.Chunk(ids, grantBatch) {
		n, err := l.store.Grant(ctx, term, part)
		if err != nil {
			return granted, err
		}
		granted += n
	}
	return granted, nil
}

// remember stores how much of a queue's rates is used once these tasks have started.
func (l *Leader) remember(
	ctx context.Context, term int64, book *allot.Book, w *allot.Waiting, ids []store.ID, now time.Time,
) error {
	put, gone, err := book.Write(w.Names(ids), &w.Limits, now)
	if err != nil {
		return err
	}
	version, _, err := l.store.PutRecord(ctx, store.PutRecord{Term: term, Record: put})
	if book.Written(version); err == nil && gone != nil {
		_, _, err = l.store.PutRecord(ctx, store.PutRecord{Term: term, Record: *gone})
	}
	if err != nil { // another process may have written it: read it again
		l.turns.read, l.turns.term = time.Time{}, 0
	}
	return err
}

func (l *Leader) readLimits(ctx context.Context, term int64, used bool) error {
	limits, err := l.limits(ctx)
	if err != nil {
		return err
	}
	t := &l.turns
	t.limits, t.unused = limits, !used && len(limits) == 0
	l.noTurns.Store(t.unused)
	if err := l.readRates(ctx, term); err != nil {
		return err
	}
	if t.unused {
		t.read = time.Now()
		return nil
	}
	workers, err := l.store.Workers(ctx)
	if err != nil {
		return err
	}
	if t.shares == nil {
		t.shares, t.ahead, t.weights = map[string]*allot.Shares{}, map[string]*window{}, map[string]map[store.ID]int{}
	}
	t.workers = map[string]int{}
	for _, w := range workers {
		for _, queue := range w.Queues {
			t.workers[queue] += w.Concurrency
		}
	}
	t.read = time.Now()
	l.readParked(ctx)
	return nil
}

// mostOldUsage is how many records of queues without rates a term deletes; its first grants wait for that.
const mostOldUsage = 100

// readRates reads the usage of all rates, once per term, because only the leader writes it.
func (l *Leader) readRates(ctx context.Context, term int64) error {
	t := &l.turns
	if t.term == term {
		return nil
	}
	records, err := l.store.Records(ctx, store.RecordFilter{Kind: allot.StateKind})
	if err != nil {
		return err
	}
	t.rates, t.term = map[string]*allot.Book{}, term
	clear(t.weights) // another leader may have granted turns in between
	deletes := mostOldUsage
	for _, r := range records {
		queue, _, _ := strings.Cut(r.Name, "/")
		if of := t.limits[queue]; !of.Rated() && l.now().Sub(r.UpdatedAt) > allot.Remembered {
			if deletes--; deletes < 0 {
				continue
			}
			put := store.PutRecord{Term: term, Record: store.Record{Kind: r.Kind, Name: r.Name, Version: r.Version}}
			if _, _, err := l.store.PutRecord(ctx, put); err != nil {
				l.o.Log.Warn("turn: old usage of a queue without rates cannot be deleted", "queue", queue, "error", err)
				deletes = 0
			}
			continue
		}
		if t.rates[queue] != nil {
			continue
		}
		if t.rates[queue], err = allot.OpenBook(queue, records); err != nil { // the next grants overwrite it
			l.o.Log.Error("turn: some usage of rates cannot be read, counting anew", "queue", queue, "error", err)
		}
	}
	return nil
}

// parkedAge is how long a count of parked tasks is used. It reads more than other settings do.
const parkedAge = 5 * time.Second

// readParked counts the tasks that wait for a retry and keep their turn. If they cannot be counted, the last count
// is used: it only affects how much is granted ahead of the workers.
func (l *Leader) readParked(ctx context.Context) {
	t := &l.turns
	if time.Since(t.counted) < parkedAge {
		return
	}
	parked := map[string]int{}
	for queue, of := range t.limits {
		if of.BlockOnRetry {
			parked[queue] = 0
		}
	}
	if len(parked) == 0 {
		t.parked = nil
		return
	}
	t.counted = time.Now()
	counts, err := l.store.Count(ctx)
	if err != nil {
		l.o.Log.Warn("turns: tasks that wait for a retry could not be counted", "error", err)
		return
	}
	for _, c := range counts {
		if _, keep := parked[c.Queue]; keep && c.State == store.Retryable {
			parked[c.Queue] = int(c.Tasks)
		}
	}
	t.parked = parked
}

// limits reads the limits of all queues. Limits that cannot be read do not limit anything.
func (l *Leader) limits(ctx context.Context) (map[string]allot.Limits, error) {
	records, err := l.store.Records(ctx, store.RecordFilter{Kind: allot.RecordKind})
	if err != nil {
		return nil, err
	}
	all := make(map[string]allot.Limits, len(records))
	for _, r := range records {
		var of allot.Limits
		if err := json.Unmarshal(r.Body, &of); err != nil {
			l.o.Log.Error("limits cannot be read", "queue", r.Name, "error", err)
		}
		all[r.Name] = of
	}
	return all, nil
}

// groupsThatWait counts the groups with waiting tasks.
func groupsThatWait(groups []store.Turns) (n int) {
	for _, g := range groups {
		if len(g.Waiting) > 0 {
			n++
		}
	}
	return n
}

func byQueue(groups []store.Turns) map[string][]store.Turns {
	queues := map[string][]store.Turns{}
	for _, g := range groups {
		queues[g.Queue] = append(queues[g.Queue], g)
	}
	return queues
}

// learn makes the next round examine more tasks of each group if that would have allowed more grants, and otherwise
// gradually fewer.
func (t *turns) learn(short bool) {
	if short {
		t.heads = min(2*t.heads, mostHeads)
	} else {
		t.heads -= (t.heads + 7) / 8
	}
}
