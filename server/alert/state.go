package alert

import (
	"slices"
	"time"

	"github.com/tuskqueue/tusk/server/herald"
	"github.com/tuskqueue/tusk/server/notify"
)

// What a message tells.
const (
	EventFiring   = "alert.firing"
	EventRepeated = "alert.repeated"
	EventOver     = "alert.over"
	EventTest     = "alert.test"
)

const (
	mostOwed   = 20             // messages that wait for one receiver; older ones are dropped
	giveUp     = 24 * time.Hour // after which a message is dropped
	firstPause = 5 * time.Second
	lastPause  = 10 * time.Minute
)

// State is how a rule stands. It is stored before anything is sent, so that whoever takes
// over neither repeats nor forgets.
type State struct {
	Since  time.Time `json:"since,omitzero"`  // since when what the rule describes holds
	Firing time.Time `json:"firing,omitzero"` // since when it has held for long enough
	Told   time.Time `json:"told,omitzero"`   // when that was last told; zero: it was not
	Text   string    `json:"text,omitempty"`

	herald.Delivery
	Owed []Owed `json:"owed,omitempty"`
}

// Owed is a message that has not arrived.
type Owed struct {
	To      string         `json:"to"` // the key of the receiver
	Message notify.Message `json:"message"`
	Tries   int            `json:"tries,omitempty"`
	Next    time.Time      `json:"next,omitzero"`
}

// Next says what becomes of a state when a rule has found something, or nothing. What is to
// be told is owed to each receiver, under an id of its own.
func (s State) Next(r *Rule, found Reading, now time.Time, newID func() string) State {
	s.Owed = slices.Clone(s.Owed)
	muted := now.Before(r.MutedUntil)
	if !found.Holds {
		if !s.Told.IsZero() { // whoever was told that it began is told that it is over
			s.owe(r, EventOver, now, newID)
		}
		s.Since, s.Firing, s.Told, s.Text = time.Time{}, time.Time{}, time.Time{}, ""
		return s
	}
	if s.Since.IsZero() {
		s.Since, s.Text = now, found.Text
	}
	if s.Firing.IsZero() && now.Sub(s.Since) >= r.For {
		s.Firing, s.Text = now, found.Text
	}
	switch {
	case s.Firing.IsZero() || muted:
	case s.Told.IsZero():
		s.Text, s.Told = found.Text, now
		s.owe(r, EventFiring, now, newID)
	case r.Repeat > 0 && now.Sub(s.Told) >= r.Repeat:
		s.Text, s.Told = found.Text, now
		s.owe(r, EventRepeated, now, newID)
	}
	return s
}

// Test owes a message to each receiver, to see that it arrives.
func (s State) Test(r *Rule, now time.Time, newID func() string) State {
	s.Owed = slices.Clone(s.Owed)
	text := s.Text
	s.Text = "this is a test: " + r.Kind.Words()
	s.owe(r, EventTest, now, newID)
	s.Text = text
	return s
}

func (s *State) owe(r *Rule, event string, now time.Time, newID func() string) {
	m := notify.Message{ID: newID(), Type: event, Timestamp: now.UTC().Truncate(time.Millisecond), Data: notify.Data{
		Alert: r.Name, Kind: string(r.Kind), Queue: r.Queue, Schedule: r.Schedule, Text: s.Text, Since: s.Since}}
	for i := range r.To {
		key := r.To[i].Key()
		waiting := 0
		for _, o := range s.Owed {
			if o.To == key {
				waiting++
			}
		}
		if waiting >= mostOwed {
			oldest := slices.IndexFunc(s.Owed, func(o Owed) bool { return o.To == key })
			s.Owed = slices.Delete(s.Owed, oldest, oldest+1)
			s.Dropped++
		}
		s.Owed = append(s.Owed, Owed{To: key, Message: m})
	}
}

// due returns the first message of each receiver that may be sent now: the next one waits
// for it, so that nobody hears the end before the beginning.
func (s *State) due(now time.Time) (due []Owed) {
	seen := map[string]bool{}
	for _, o := range s.Owed {
		if !seen[o.To] && !now.Before(o.Next) {
			due = append(due, o)
		}
		seen[o.To] = true
	}
	return due
}

// settle notes what became of a message. A receiver that the rule has no longer gets none.
func (s *State) settle(of Owed, now time.Time, failed error) {
	i := slices.IndexFunc(s.Owed, func(o Owed) bool { return o.To == of.To && o.Message.ID == of.Message.ID })
	if i < 0 {
		return
	}
	o := &s.Owed[i]
	switch {
	case failed == nil:
		s.Arrived = now
	case now.Sub(o.Message.Timestamp) > giveUp || o.Message.Type == EventTest:
		s.Error, s.Failed = failed.Error(), now
		s.Dropped++
	default:
		s.Error, s.Failed = failed.Error(), now
		o.Next = now.Add(min(firstPause<<min(o.Tries, 10), lastPause))
		o.Tries++
		return
	}
	s.Owed = slices.Delete(s.Owed, i, i+1)
}

// Stands says a state in a word: ok, pending or firing.
func (s *State) Stands() string {
	switch {
	case !s.Firing.IsZero():
		return "firing"
	case !s.Since.IsZero():
		return "pending"
	}
	return "ok"
}
