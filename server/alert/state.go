package alert

import (
	"errors"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/server/herald"
	"github.com/tuskqueue/tusk/server/notify"
)

// Types of messages.
const (
	EventFiring   = "alert.firing"
	EventRepeated = "alert.repeated"
	EventOver     = "alert.over"
	EventTest     = "alert.test"
)

const (
	mostOwed   = 20             // messages waiting for one receiver; older ones are dropped
	giveUp     = 24 * time.Hour // age at which a message is dropped
	firstPause = 5 * time.Second
	lastPause  = 10 * time.Minute
)

// State is the state of a rule. It is stored before anything is sent, so that a process that takes over neither
// repeats nor forgets a message.
type State struct {
	Since  time.Time `json:"since,omitzero"`  // when the condition began to hold
	Firing time.Time `json:"firing,omitzero"` // when it had held for long enough
	Told   time.Time `json:"told,omitzero"`   // when that was last reported; zero if it was not
	Text   string    `json:"text,omitempty"`

	herald.Delivery
	Owed []Owed `json:"owed,omitempty"`
	Miss Miss   `json:"miss,omitzero"`
}

// Miss is the last test whose message a receiver did not get, and why.
type Miss struct {
	ID    string `json:"id"`
	Error string `json:"error"`
}

// Owed is a message that has not been delivered yet.
type Owed struct {
	To      string         `json:"to"` // the receiver's key
	Message notify.Message `json:"message"`
	Tries   int            `json:"tries,omitempty"`
	Next    time.Time      `json:"next,omitzero"`
}

// Next returns the state that follows from a reading. A message that is due is owed to each receiver, under its own
// id.
func (s State) Next(r *Rule, found Reading, now time.Time, newID func() string) State {
	s.Owed = slices.Clone(s.Owed)
	muted := now.Before(r.MutedUntil)
	if !found.Holds {
		if !s.Told.IsZero() { // report the end if the beginning was reported
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

// Test owes a message to each receiver, to check that it arrives.
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

// due returns, for each receiver, the first owed message if it may be sent now. Later messages wait for it, so that
// no receiver gets the end before the beginning.
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

// errGone says that a rule no longer has the receiver of a message.
var errGone = errors.New("the alert no longer has this receiver")

// settle records the result of sending a message.
func (s *State) settle(of Owed, now time.Time, failed error) {
	i := slices.IndexFunc(s.Owed, func(o Owed) bool { return o.To == of.To && o.Message.ID == of.Message.ID })
	if i < 0 {
		return
	}
	o := &s.Owed[i]
	switch {
	case failed == nil:
		s.Arrived = now
	case errors.Is(failed, errGone):
	case now.Sub(o.Message.Timestamp) > giveUp || o.Message.Type == EventTest:
		s.Error, s.Failed = failed.Error(), now
		s.Dropped++
		if o.Message.Type == EventTest {
			s.Miss = Miss{o.Message.ID, s.Error}
		}
	default:
		s.Error, s.Failed = failed.Error(), now
		o.Next = now.Add(min(firstPause<<min(o.Tries, 10), lastPause))
		o.Tries++
		return
	}
	s.Owed = slices.Delete(s.Owed, i, i+1)
}

// Stands describes a state in a word: ok, pending or firing.
func (s *State) Stands() string {
	switch {
	case !s.Firing.IsZero():
		return "firing"
	case !s.Since.IsZero():
		return "pending"
	}
	return "ok"
}
