package hook

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/herald"
	"github.com/tuskqueue/tusk/server/push"
	"github.com/tuskqueue/tusk/server/shelf"
	"github.com/tuskqueue/tusk/store"
)

const (
	pause      = time.Second
	within     = 15 * time.Second
	page       = 10  // transactions read at once
	most       = 200 // events in one call
	rounds     = 20  // pages of one hook in a round
	firstPause = 2 * time.Second
	lastPause  = 5 * time.Minute
)

// Event is the end of a task as reported. ID is the same whenever it is repeated.
type Event struct {
	ID      string    `json:"id"`
	Type    string    `json:"type"`
	At      time.Time `json:"at"`
	Task    string    `json:"task"`
	Kind    string    `json:"kind,omitempty"`
	Queue   string    `json:"queue,omitempty"`
	Tenant  string    `json:"tenant,omitempty"`
	Key     string    `json:"key,omitempty"`
	Tags    []string  `json:"tags,omitempty"`
	Attempt int       `json:"attempt,omitempty"`
	Reason  string    `json:"reason,omitempty"`
}

// Message is the body of a call: up to 200 events in order.
type Message struct {
	ID     string  `json:"id"`
	Type   string  `json:"type"` // always "task.events"
	Hook   string  `json:"hook"`
	Events []Event `json:"events"`
}

// Runner reports ends. Make one with New.
type Runner struct {
	book *Book
	post *herald.Post
	log  *slog.Logger

	every time.Duration
}

// New returns a runner. If every is zero it is 1 s; if patience is zero it is herald.Patience.
func New(book *Book, log *slog.Logger, every, patience time.Duration) *Runner {
	return &Runner{book: book, post: herald.New(book.store, post, tusk.NewID(), patience), log: log,
		every: cmp.Or(every, pause)}
}

// Run reports ends until ctx ends. It returns at once if the engine cannot report them.
func (r *Runner) Run(ctx context.Context) {
	if historian, ok := store.As[store.Historian](r.book.store); ok {
		shelf.Reseal(ctx, r.log, "hooks", r.book.Reseal)
		r.post.Serve(ctx, r.every, r.log, func(ctx context.Context) error { return r.round(ctx, historian) })
	}
}

// begin reads the hooks and their states, if there are any and this process holds the post.
func (r *Runner) begin(ctx context.Context) (docs []document, states map[string]State, now time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, herald.Patience)
	defer cancel()
	if docs, err = r.book.documents(ctx); err != nil || len(docs) == 0 {
		return nil, nil, now, errors.Join(err, r.post.Release(ctx))
	}
	now, held, err := r.post.Hold(ctx)
	if err != nil || !held {
		return nil, nil, now, err
	}
	states, err = r.book.states(ctx, docs)
	return docs, states, now, err
}

// round works on all hooks once, in parallel.
func (r *Runner) round(ctx context.Context, historian store.Historian) error {
	docs, states, now, err := r.begin(ctx)
	if err != nil || len(docs) == 0 {
		return err
	}
	ctx, leave := r.post.Stay(ctx)
	defer leave()
	cursors, problems := make([]string, len(docs)), make([]error, len(docs))
	var work sync.WaitGroup
	begun := time.Now()
	keepPost := func() bool { return time.Since(begun) < herald.Patience/3 }
	for i := range docs {
		s := states[docs[i].Name]
		cursors[i] = s.Cursor // not where it will be: a hook that is created meanwhile begins before that
		work.Go(func() { problems[i] = r.tell(ctx, historian, &docs[i], &s, now, keepPost) })
	}
	work.Wait()
	if err := errors.Join(problems...); err != nil {
		return err
	}
	slices.SortFunc(cursors, func(a, b string) int { // cursors are numbers
		if len(a) != len(b) {
			return len(a) - len(b)
		}
		return strings.Compare(a, b)
	})
	return historian.Forget(ctx, cursors[0])
}

// pass moves the state behind a page that has been dealt with.
func (s *State) pass(told store.Ends) {
	s.Cursor, s.Done, s.Dropped = told.Cursor, 0, s.Dropped+max(told.Missed, 0)
}

// tell reports to a hook what has ended, page by page, until goOn says no. It stores the cursor after a page has
// arrived.
func (r *Runner) tell(
	ctx context.Context, historian store.Historian, d *document, s *State, now time.Time, goOn func() bool,
) (err error) {
	if now.Before(s.Next) {
		return nil
	}
	stored := *s
	for n := 0; n < rounds && goOn() && err == nil; n++ {
		var told store.Ends
		if told, err = historian.Ended(ctx, s.Cursor, page); err != nil {
			return fmt.Errorf("hook %s: %w", d.Name, err)
		}
		if told.Missed > 0 {
			s.Done = 0 // the page begins later
		}
		if len(told.Ends) == 0 {
			s.pass(told)
			s.Waits, s.Through = time.Time{}, now
			break
		}
		arrived := false
		if arrived, err = r.deliver(ctx, d, s, told.Ends, now, goOn); err != nil {
			if ctx.Err() != nil {
				return nil // the process that has the post reports it
			}
			r.log.Warn("hooks: not told", "hook", d.Name, "error", err)
			s.Error, s.Failed = err.Error(), now
			s.Next = now.Add(min(firstPause<<min(s.Failures, 10), lastPause))
			s.Failures++
			break
		}
		if !arrived {
			break
		}
		s.pass(told)
		if err := r.save(ctx, d.Name, *s); err != nil {
			return err
		}
		stored = *s
	}
	if err != nil && s.Error != err.Error() {
		return err
	}
	same := s.Error == stored.Error && s.Count == stored.Count && s.Dropped == stored.Dropped &&
		s.Waits.Equal(stored.Waits) &&
		s.Failures == stored.Failures
	if *s == stored || same && s.Through.Sub(stored.Through) < 30*time.Second {
		return nil // an idle hook is written only now and then
	}
	return r.save(ctx, d.Name, *s)
}

func (r *Runner) save(ctx context.Context, name string, s State) error {
	return shelf.ChangeOf(ctx, r.book.store, hookKind, stateKind, name, func(doc *State) { *doc = s })
}

// deliver sends those ends of a page that a hook wants, in order, until goOn says no: all hooks wait for a round to
// end. What has arrived is counted as done, and is not sent again together with the rest. It reports whether all has
// arrived.
func (r *Runner) deliver(
	ctx context.Context, d *document, s *State, ends []store.End, now time.Time, goOn func() bool,
) (all bool, err error) {
	var wanted []store.End
	var done []int // how many ends are done after each of them
	tooOld := func(e *store.End) bool { return wants(d, e) && now.Sub(e.At) > d.Keep }
	for i := s.Done; i < len(ends); i++ {
		if e := &ends[i]; wants(d, e) && !tooOld(e) {
			wanted, done = append(wanted, *e), append(done, i+1)
		}
	}
	settle := func(upTo int) {
		for i := range ends[s.Done:upTo] {
			if tooOld(&ends[s.Done+i]) {
				s.Dropped++
			}
		}
		s.Done = upTo
	}
	if len(wanted) > 0 {
		s.Waits = wanted[0].At
	}
	for len(wanted) > 0 {
		n := min(len(wanted), most)
		events, err := r.describe(ctx, d, wanted[:n])
		if err != nil {
			return false, err
		}
		if len(events) > 0 {
			if err := r.call(ctx, d, events); err != nil {
				return false, err
			}
			s.Count += int64(len(events))
			s.Arrived, s.Error, s.Failures, s.Next = now, "", 0, time.Time{}
		}
		settle(done[n-1])
		if wanted, done = wanted[n:], done[n:]; len(wanted) > 0 && !goOn() {
			s.Waits = wanted[0].At
			return false, nil
		}
	}
	settle(len(ends))
	return true, nil
}

func wants(d *document, e *store.End) bool {
	return slices.Contains(d.Events, eventOf(e)) &&
		(e.Queue == "" || len(d.Queues) == 0 || slices.Contains(d.Queues, e.Queue))
}

// describe makes events from ends, adding what is known about their tasks.
func (r *Runner) describe(ctx context.Context, d *document, ends []store.End) ([]Event, error) {
	ids := make([]store.ID, 0, len(ends))
	for _, e := range ends {
		if !slices.Contains(ids, e.Task) {
			ids = append(ids, e.Task)
		}
	}
	tasks, err := r.book.store.List(ctx, store.Filter{IDs: ids, Limit: len(ids), NoArgs: true})
	if err != nil {
		return nil, fmt.Errorf("hook %s: %w", d.Name, err)
	}
	known := map[store.ID]*store.Task{}
	for i := range tasks {
		known[tasks[i].ID] = &tasks[i]
	}
	var events []Event
	for _, e := range ends {
		event := Event{Type: eventOf(&e), At: e.At.UTC(), Task: e.Task.String(), Queue: e.Queue}
		if t := known[e.Task]; t != nil {
			event.Kind, event.Tenant, event.Key, event.Tags, event.Attempt = t.Kind, t.Tenant, t.Key, t.Tags, t.Attempt
			if event.Queue == "" {
				event.Queue = t.Queue
			}
			if t.State == e.State && !t.FinishedAt.After(e.At) { // it has not ended again
				event.Reason = t.Reason
			}
		}
		if len(d.Queues) > 0 && !slices.Contains(d.Queues, event.Queue) {
			continue
		}
		event.ID = digest(fmt.Sprintf("%s %s %d", event.Type, event.Task, e.At.UnixMicro()))
		events = append(events, event)
	}
	return events, nil
}

func (r *Runner) call(ctx context.Context, d *document, events []Event) error {
	secret, err := r.book.secret(d)
	if err != nil {
		return err
	}
	id := digest(events[0].ID + " " + events[len(events)-1].ID)
	body, err := json.Marshal(Message{ID: id, Type: "task.events", Hook: d.Name, Events: events})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return r.book.sender.Post(ctx, d.URL, body, func(h http.Header) error {
		return push.Sign(h, id, time.Now(), body, []string{secret})
	})
}

func eventOf(e *store.End) string {
	switch {
	case e.Rescued:
		return Rescued
	case e.State == store.Completed:
		return Completed
	case e.State == store.Cancelled:
		return Cancelled
	}
	return Discarded
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "evt_" + hex.EncodeToString(sum[:16])
}
