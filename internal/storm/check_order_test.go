//go:build unix

package storm

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/tuskqueue/tusk"
)

// needs checks I10: a task with needs runs after the needed tasks, and only if they completed. An ended task may have
// been archived meanwhile; a task that was not told of that end is cancelled.
func (c *checker) needs(p *past) {
	e := p.added()
	if e == nil || len(e.Needs) == 0 {
		return
	}
	for _, id := range e.Needs {
		if len(p.claims) > 0 && c.of(id).ended() > p.claims[0].at {
			c.violation("I10", "task %s was claimed before %s, which it needs, had ended", p.id, id)
		}
		if child, parent := c.stored[p.id], c.stored[id]; child != nil && child.State == tusk.StateCompleted &&
			parent != nil && parent.State != tusk.StateCompleted {
			c.violation("I10", "task %s is completed, and %s, which it needs, is %v", p.id, id, parent.State)
		}
	}
	failed := func(id tusk.ID) bool { return c.stored[id] == nil || c.stored[id].State != tusk.StateCompleted }
	if child := c.stored[p.id]; child != nil && child.State == tusk.StateCancelled &&
		strings.HasPrefix(child.Reason, "needs task") && !slices.ContainsFunc(e.Needs, failed) {
		c.violation("I10", "task %s is cancelled (%s), and all that it needs is completed", p.id, child.Reason)
	}
}

// takenOver reports whether the attempt that raised an alarm had lost its task to another attempt, for example
// because its worker was paused for longer than its lease between the request and the handler.
func (c *checker) takenOver(e event) bool {
	if len(e.Items) == 0 {
		return false
	}
	p, mine := c.of(e.Items[0].ID), e.Items[0].Token
	return slices.ContainsFunc(p.releases, func(x release) bool {
		return x.Rescue && x.Token == mine && x.asked < e.At
	}) ||
		slices.ContainsFunc(p.claims, func(l claimed) bool { return l.Token != mine && l.at < e.At && c.follows(p, l, mine) })
}

// follows reports whether a claim came after the claim with a token, by the engine's clock.
func (c *checker) follows(p *past, l claimed, token string) bool {
	return slices.ContainsFunc(p.claims, func(before claimed) bool {
		return before.Token == token && before.Claimed < l.Claimed
	})
}

// keys checks I7: no two tasks with the same key are unfinished at the same time.
func (c *checker) keys() {
	live := map[string][]interval{}
	for _, p := range c.tasks {
		e := p.added()
		if e == nil || e.Key == "" {
			continue
		}
		end := p.ended()
		if e.Conflict == int8(tusk.Rerun) { // any outcome may make way for a newer task
			for _, x := range p.releases {
				if !x.no {
					end = min(end, x.asked)
				}
			}
		}
		from := e.answered
		if len(p.claims) > 0 { // the answer may have been late
			from = min(from, p.claims[0].at)
		}
		if from < end {
			live[e.Key] = append(live[e.Key], interval{from, end, p.id})
		}
	}
	for key, all := range live {
		c.disjoint("I7", "key "+key, all)
	}
}

// newest checks A10: the newest acknowledged version of a source has been run.
func (c *checker) newest() {
	told, seen := map[string]int64{}, map[string]int64{}
	cancelled := map[string]bool{}
	for _, p := range c.tasks {
		for _, e := range p.enqueues {
			if e.Conflict == int8(tusk.Rerun) && e.yes && (e.result == "added" || e.result == "replaced" ||
				e.result == "awaiting") {
				told[e.Key] = max(told[e.Key], e.Version)
			}
			if len(p.edits) > 0 {
				cancelled[e.Key] = true
			}
		}
		for _, it := range p.effects {
			if it.Key != "" {
				seen[it.Key] = max(seen[it.Key], it.Version)
			}
		}
	}
	for key, version := range told {
		if seen[key] < version && !cancelled[key] {
			c.violation("A10", "source %s: version %d was acknowledged, and the newest that ran is %d", key, version, seen[key])
		}
	}
}

type interval struct {
	from, until int64
	id          tusk.ID
}

func (c *checker) disjoint(of, what string, all []interval) {
	slices.SortFunc(all, func(a, b interval) int { return cmp.Compare(a.from, b.from) })
	for i := 1; i < len(all); i++ {
		if a, b := all[i-1], all[i]; a.until > b.from && a.id != b.id {
			c.violation(of, "%s: %s and %s at the same time, for %v", what, a.id, b.id,
				time.Duration(min(a.until, b.until, c.ends)-b.from))
		}
	}
}

// held returns the spans in which tasks of a queue were certainly held by a worker.
func (c *checker) held(queue string) map[string][]interval {
	spans := map[string][]interval{}
	for _, p := range c.tasks {
		for _, l := range p.claims {
			if end := c.over(p, l); l.Queue == queue && end > l.at {
				spans[l.Part] = append(spans[l.Part], interval{l.at, end, p.id})
			}
		}
	}
	return spans
}

// serial checks I8: tasks run one after another, in the order in which they were enqueued.
func (c *checker) serial() {
	for part, spans := range c.held(queueSerial) {
		c.disjoint("I8", "partition "+part, spans)
	}
	parts := map[string][]*past{}
	for _, p := range c.tasks {
		if e := p.added(); e != nil && e.Queue == queueSerial && p.retried() == 0 {
			parts[e.Part] = append(parts[e.Part], p)
		}
	}
	for part, all := range parts {
		slices.SortFunc(all, func(a, b *past) int { return cmp.Compare(a.added().asked, b.added().asked) })
		for i := 1; i < len(all); i++ {
			a, b := all[i-1], all[i]
			if a.added().answered < b.added().asked && len(b.claims) > 0 && a.ended() > b.claims[0].at &&
				!c.reset(a.began(), b.claims[0].at) {
				c.violation("I8", "partition %s: %s began before %s, which came first, had ended", part, b.id, a.id)
			}
		}
	}
}

// limited checks I9: never more tasks at a time than the limit allows.
func (c *checker) limited() {
	type edge struct {
		at   int64
		more int
	}
	var edges []edge
	for _, spans := range c.held(queueLimited) {
		for _, one := range spans {
			edges = append(edges, edge{one.from, 1}, edge{one.until, -1})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.more, b.more)) })
	running, most := 0, 0
	for _, e := range edges {
		running += e.more
		most = max(most, running)
	}
	if most > mostLimited {
		c.violation("I9", "%d tasks of a queue with a limit of %d ran at a time", most, mostLimited)
	}
}
