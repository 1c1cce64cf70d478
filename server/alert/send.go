package alert

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tuskqueue/tusk/server/notify"
)

const (
	within  = 10 * time.Second // for one message
	atOnce  = 100              // messages that are sent at the same time
	abreast = 10               // of these to one receiver
)

// parcel is a message that is due, and its rule.
type parcel struct {
	rule *Rule
	owed Owed
}

// receiving returns the receivers that messages are being sent to.
func (r *Runner) receiving() map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.busy)
}

// send starts to send what is due and does not wait. A receiver that is busy gets it in a later look, so one that hangs
// delays only its own messages. now is the database's time when the look began.
func (r *Runner) send(alerts []Alert, busy map[string]bool, now, began time.Time) {
	due := map[string][]parcel{}
	for i := range alerts {
		a := &alerts[i]
		for _, owed := range a.due(now) {
			due[owed.To] = append(due[owed.To], parcel{&a.Rule, owed})
		}
	}
	ctx := r.sending
	for to, parcels := range due {
		if busy[to] {
			continue
		}
		r.mu.Lock()
		r.busy[to] = true
		r.mu.Unlock()
		r.work.Go(func() {
			r.sendAll(ctx, parcels, func() time.Time { return now.Add(time.Since(began)) })
			r.mu.Lock()
			delete(r.busy, to)
			r.mu.Unlock()
		})
	}
}

// sendAll sends the messages of one receiver, several at a time, until it hangs. Others are sent in a later look.
func (r *Runner) sendAll(ctx context.Context, parcels []parcel, now func() time.Time) {
	var work sync.WaitGroup
	defer work.Wait()
	var hung atomic.Bool
	own := make(chan struct{}, abreast)
	for _, p := range parcels {
		own <- struct{}{}
		r.room <- struct{}{}
		work.Go(func() {
			defer func() { <-r.room; <-own }()
			if ctx.Err() != nil || hung.Load() {
				return
			}
			begun := time.Now()
			failed := r.deliver(ctx, p.rule, p.owed)
			if failed != nil && time.Since(begun) >= within {
				hung.Store(true)
			}
			r.settle(ctx, p, now(), failed)
		})
	}
}

// settle stores what became of a message.
func (r *Runner) settle(ctx context.Context, p parcel, now time.Time, failed error) {
	if failed != nil && ctx.Err() != nil {
		return // it is sent again, under the same id
	}
	if failed != nil {
		r.log.Warn("alerts: not told", "alert", p.rule.Name, "error", failed)
	}
	sure, done := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer done()
	err := r.book.changeState(sure, p.rule.Name, func(s State) State {
		s.settle(p.owed, now, failed)
		return s
	})
	if err != nil {
		r.log.Warn("alerts", "alert", p.rule.Name, "error", err)
	}
}

func (r *Runner) deliver(ctx context.Context, rule *Rule, owed Owed) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	of := func(key string) func(notify.Receiver) bool {
		return func(to notify.Receiver) bool { return to.Key() == key }
	}
	if i := slices.IndexFunc(rule.To, of(owed.To)); i >= 0 {
		return r.book.sender.Send(ctx, &rule.To[i], owed.Message)
	}
	if owed.To == "" || slices.ContainsFunc(rule.To, of("")) {
		return notify.ErrSealed // its receiver may be one whose key is unknown
	}
	return errGone
}
