package ui

import (
	"context"
	"encoding/json"
	"errors"
	"hash/fnv"
	"net/http"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/server/feed"
)

// stream is a response of server-sent events.
type stream struct {
	v       *visit
	control *http.ResponseController
}

const (
	streamBeat = 15 * time.Second // between two heartbeats, each with a check of the visitor's access
	streamWait = 30 * time.Second // how long to wait for a slow browser
)

func (v *visit) stream() stream {
	h := v.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	s := stream{v, http.NewResponseController(v.w)}
	_ = s.control.SetReadDeadline(time.Time{}) // otherwise it would end the request
	return s
}

// send writes an event and reports whether the browser is still connected.
func (s stream) send(text string) bool {
	_ = s.control.SetWriteDeadline(time.Now().Add(streamWait))
	if _, err := s.v.w.Write([]byte(text + "\n\n")); err != nil {
		return false
	}
	return s.control.Flush() == nil
}

// beat sends a heartbeat if the visitor still has read access.
func (s stream) beat() bool {
	who, err := s.v.Who(s.v.r)
	return err == nil && who.May(access.Read) && s.send(": still here")
}

var errTooManyWatch = failure(http.StatusServiceUnavailable,
	"Too many pages are watched already. Close some, and try again.")

// live streams the numbers of a page that change, as texts by name.
func live(v *visit) (answer, error) {
	snapshots, leave := v.Feed.Watch(v.who.ID)
	if snapshots == nil {
		feed.Refused(v.r.Context())
		return answer{}, errTooManyWatch
	}
	defer leave()
	s := v.stream()
	beat := time.NewTicker(streamBeat)
	defer beat.Stop()
	before := map[string]string{}
	for there := true; there; {
		select {
		case <-v.r.Context().Done():
			there = false
		case snapshot, open := <-snapshots:
			if !open {
				return answer{done: true}, nil
			}
			changed, err := v.changes(snapshot, before)
			there = err == nil && s.send("data: "+string(changed))
		case <-beat.C:
			there = s.beat()
		}
	}
	return answer{done: true}, nil
}

// look returns a checksum that differs when something has changed, and whether it has ended.
type look func(v *visit) (sum uint64, ended bool, err error)

const lookEvery = time.Second

// within looks once, in the visitor's turn and no longer than a page may take.
func (at look) within(v *visit) (sum uint64, ended bool, err error) {
	ctx, cancel := context.WithTimeout(v.r.Context(), longest)
	defer cancel()
	once := *v
	once.r = v.r.WithContext(ctx)
	giveBack, err := once.turn(Route{Method: http.MethodGet, Need: access.Read})
	if err != nil {
		return 0, false, err
	}
	defer giveBack()
	return at(&once)
}

// watch sends an event each time the contents of a page have changed, so that the browser fetches the page again, and
// another one when they have ended.
func (v *visit) watch(at look) (answer, error) {
	over, leave := v.Feed.Join(v.who.ID)
	if over == nil {
		feed.Refused(v.r.Context())
		return answer{}, errTooManyWatch
	}
	defer leave()
	before, ended, err := at.within(v)
	if err != nil {
		return answer{}, err
	}
	s := v.stream()
	looks, beat := time.NewTicker(lookEvery), time.NewTicker(streamBeat)
	defer looks.Stop()
	defer beat.Stop()
	for there := s.send("data: changed"); there && !ended; { // it may have changed since the page was made
		select {
		case <-v.r.Context().Done():
			there = false
		case <-over:
			return answer{done: true}, nil
		case <-beat.C:
			there = s.beat()
		case <-looks.C:
			sum, now, err := at.within(v)
			switch ended = now || errors.Is(err, tusk.ErrNotFound); {
			case err != nil: // try again after an error
			case sum != before:
				before, there = sum, s.send("data: changed")
			}
		}
	}
	if ended {
		s.send("event: end\ndata: ended")
	}
	return answer{done: true}, nil
}

// sumOf returns a checksum of anything that JSON can encode.
func sumOf(parts ...any) (uint64, error) {
	sum := fnv.New64a()
	err := json.NewEncoder(sum).Encode(parts)
	return sum.Sum64(), err
}

// ages is how often a page that shows ages is fetched again if nothing else changes.
const ages = 10 * time.Second

// listEvery is the shortest interval at which a list is fetched again.
const listEvery = 3 * time.Second

// lists returns the address of watchLists.
func (v *visit) lists() string { return v.url("live", "lists") }

// watchLists sends an event when tasks may have come, begun or ended, and whenever ages need an update. Visitors who
// see only some tasks get no event when others' tasks change.
func watchLists(v *visit) (answer, error) {
	snapshots, leave := v.Feed.Watch(v.who.ID)
	if snapshots == nil {
		feed.Refused(v.r.Context())
		return answer{}, errTooManyWatch
	}
	defer leave()
	whole := v.who.SeesAllTenants() && len(v.who.Queues) == 0
	s := v.stream()
	beat := time.NewTicker(streamBeat)
	defer beat.Stop()
	var before uint64
	var told time.Time
	for there := s.send(": here"); there; {
		select {
		case <-v.r.Context().Done():
			there = false
		case snapshot, open := <-snapshots:
			if !open {
				return answer{done: true}, nil
			}
			sum, err := listSum(snapshot)
			if there = err == nil; told.IsZero() {
				before, told = sum, time.Now()
			}
			if ago := time.Since(told); there && (ago >= ages || whole && ago >= listEvery && sum != before) {
				before, told = sum, time.Now()
				there = s.send("data: changed")
			}
		case <-beat.C:
			there = s.beat()
		}
	}
	return answer{done: true}, nil
}

// listSum returns a checksum that differs when the number of tasks in a state has changed or something has ended. The
// age of the oldest task does not count as a change.
func listSum(s *feed.Snapshot) (uint64, error) {
	counts := make([]any, 0, 3*len(s.Queues))
	for _, q := range s.Queues {
		counts = append(counts, q.Name, q.Paused, q.Tasks)
	}
	return sumOf(counts, s.Minute)
}

func watchTask(v *visit) (answer, error) {
	return v.watch(func(v *visit) (uint64, bool, error) {
		t, err := v.visible()
		if err != nil {
			return 0, false, err
		}
		sum, err := sumOf(t, time.Now().Truncate(ages))
		return sum, t.State.Finished(), err
	})
}

func watchOperation(v *visit) (answer, error) {
	return v.watch(func(v *visit) (uint64, bool, error) {
		o, err := v.operation()
		if err != nil {
			return 0, false, err
		}
		sum, err := sumOf(o, time.Now().Truncate(ages))
		return sum, o.Ended(), err
	})
}

// changes returns the cells that differ from those sent before.
func (v *visit) changes(s *feed.Snapshot, before map[string]string) ([]byte, error) {
	changed := map[string]string{}
	set := func(name, text string) {
		if before[name] != text {
			before[name], changed[name] = text, text
		}
	}
	rows, sums := v.queueRows(s), v.totals(s)
	for _, state := range stateNames {
		set("total."+state, num(sums[state]))
	}
	set("total.oldest", dur(oldest(rows)))
	if gaveUp, err := v.Feed.Discarded(v.r.Context()); err == nil {
		set("total.discarded", v.discardedOf(gaveUp))
	}
	for _, q := range rows {
		for state, n := range q.Counts {
			set("q."+q.Name+"."+state, num(n))
		}
		set("q."+q.Name+".oldest", dur(q.Oldest))
		set("q."+q.Name+".minute", num(q.Minute))
	}
	for _, w := range s.Workers {
		if v.seesWorker(w) {
			set("w."+w.ID.String()+".running", num(w.Running))
			set("w."+w.ID.String()+".beat", instant{w.BeatAt, s.At}.Relative())
		}
	}
	return json.Marshal(changed)
}
