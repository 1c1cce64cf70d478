//go:build unix

package storm

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"math"
	"os"
	"slices"
	"time"

	"github.com/tuskqueue/tusk"
)

// record is a history sorted by subject: what happened to each task, and everything else.
type record struct {
	tasks    map[tusk.ID]*past
	leads    []event
	chores   []chored
	crashes  []span // of the database server
	troubles []span // while faults struck, up to the next end of one
	lapses   []span // acknowledged writes from these spans may have been lost
	alarms   []event
	vitals   map[int][]event // by process
	beats    map[int][]event // by process
	holds    []event
	clocks   []event           // when the server's clock was set, and to what
	larges   map[tusk.ID]int64 // the version of each task's large args
	begins   int64
	ends     int64
	resyncs  bool // processes read the server's clock every half minute
}

// past is what happened to one task.
type past struct {
	id       tusk.ID
	enqueues []enqueued
	claims   []claimed
	releases []release
	edits    []edited
	effects  []item
	steps    []event // each with this task alone
	begun    int     // how often a handler began
}

type span struct{ from, until int64 }

// ask is a question and what is known about its answer.
type ask struct {
	asked    int64
	answered int64 // 0 if never
	yes, no  bool  // neither means unknown
}

type enqueued struct {
	ask
	item
	result string
	// tx, then, or empty
	how string
}

type claimed struct {
	item
	asked, at int64
	worker    string
}

type release struct {
	ask
	item
}

type edited struct {
	ask
	op string
}

type chored struct {
	event
	asked int64
}

func newRecord(events []event) *record {
	r := &record{tasks: map[tusk.ID]*past{}, larges: map[tusk.ID]int64{}, vitals: map[int][]event{},
		beats: map[int][]event{}}
	type key struct {
		file int
		call int64
	}
	answers := map[key]event{}
	for _, e := range events {
		switch e.Op {
		case opEnqueued, opFinished, opEdited:
			answers[key{e.file, e.Call}] = e
		}
		r.ends = max(r.ends, e.At)
		if r.begins == 0 || e.At < r.begins {
			r.begins = e.At
		}
	}
	r.lapse(events)
	asked := map[key]int64{}
	for _, e := range events {
		answer, has := answers[key{e.file, e.Call}]
		a := ask{asked: e.At}
		if has {
			a.answered, a.yes, a.no = answer.At, answer.Err == "" && !r.lapsed(answer.At), answer.Err == errNone
		}
		switch e.Op {
		case opEnqueue:
			for i, it := range e.Items {
				one := enqueued{ask: a, item: it, how: e.Text}
				if a.yes && i < len(answer.Items) {
					one.result = answer.Items[i].State
				}
				r.of(it.ID).enqueues = append(r.of(it.ID).enqueues, one)
			}
		case opClaimed:
			for _, it := range e.Items {
				r.of(it.ID).claims = append(r.of(it.ID).claims, claimed{it, e.Asked, e.At, e.Who})
			}
		case opFinish:
			r.finish(e, a, answer)
		case opEdit:
			for i, it := range e.Items {
				one := edited{ask: a, op: e.Text}
				if a.yes && i < len(answer.Items) && answer.Items[i].State != "changed" && answer.Items[i].State != "requested" {
					one.yes, one.no = false, true
				}
				r.of(it.ID).edits = append(r.of(it.ID).edits, one)
			}
		case opBegin:
			for _, it := range e.Items {
				r.of(it.ID).begun++
			}
		case opEffect:
			for _, it := range e.Items {
				r.of(it.ID).effects = append(r.of(it.ID).effects, it)
			}
		case opStep, opStepped:
			p := r.of(e.Items[0].ID)
			p.steps = append(p.steps, e)
		case opLed:
			r.leads = append(r.leads, e)
		case opChore:
			asked[key{e.file, e.Call}] = e.At
		case opChored:
			r.chores = append(r.chores, chored{e, asked[key{e.file, e.Call}]})
		case opLarge:
			for _, it := range e.Items {
				r.larges[it.ID] = it.Version
			}
		case opClock:
			r.clocks = append(r.clocks, e)
		case opBeat:
			r.beats[e.file] = append(r.beats[e.file], e)
		case opHeld:
			r.holds = append(r.holds, e)
		case opVitals:
			r.vitals[e.file] = append(r.vitals[e.file], e)
		case opFault:
			r.troubles = append(r.troubles, span{e.At, math.MaxInt64})
			if e.Text == crash {
				r.crashes = append(r.crashes, span{e.At, math.MaxInt64})
			}
			if e.Err != "" {
				r.alarms = append(r.alarms, e)
			}
		case opCalm:
			for i := range r.troubles {
				r.troubles[i].until = min(r.troubles[i].until, e.At)
			}
			for i := range r.crashes {
				if e.Text == crash && !slices.Contains(r.lapses, r.crashes[i]) { // old answers may come late
					r.crashes[i].until = min(r.crashes[i].until, e.At+int64(time.Second))
				}
			}
		}
	}
	return r
}

// lapse records failovers. Each is a crash as well.
func (r *record) lapse(events []event) {
	for _, e := range events {
		switch {
		case e.Text == failover && e.Op == opFault:
			r.lapses = append(r.lapses, span{e.At, math.MaxInt64})
		case e.Text == failover && e.Op == opCalm && len(r.lapses) > 0: // old answers may come late
			r.lapses[len(r.lapses)-1].until = min(r.lapses[len(r.lapses)-1].until, e.At+int64(time.Second))
		}
	}
	r.crashes = append(r.crashes, r.lapses...)
}

// lapsed reports whether a write answered at that time may have been lost.
func (r *record) lapsed(at int64) bool {
	return slices.ContainsFunc(r.lapses, func(s span) bool { return at >= s.from && at <= s.until })
}

func (r *record) finish(e event, a ask, answer event) {
	lost, open := map[tusk.ID]int{}, map[tusk.ID]bool{}
	for _, it := range answer.Items {
		lost[it.ID]++
		open[it.ID] = open[it.ID] || it.State == unclear
	}
	twice := map[tusk.ID]int{}
	for _, it := range e.Items {
		twice[it.ID]++
	}
	for _, it := range e.Items {
		one := release{a, it}
		if a.yes && lost[it.ID] > 0 {
			one.yes, one.no = false, lost[it.ID] == twice[it.ID] && !open[it.ID]
		}
		r.of(it.ID).releases = append(r.of(it.ID).releases, one)
	}
}

func (r *record) of(id tusk.ID) *past {
	p := r.tasks[id]
	if p == nil {
		p = &past{id: id}
		r.tasks[id] = p
	}
	return p
}

// order sorts claims in the order in which the engine made them, because an answer may be delayed for long.
func (r *record) order() {
	for _, p := range r.tasks {
		slices.SortStableFunc(p.claims, func(a, b claimed) int { return cmp.Compare(r.made(a), r.made(b)) })
	}
}

// made returns when the engine made a claim, by the machine's clock. That is between the request and the answer; the
// server's clock tells when. The server's clock may be wrong by one of the amounts that it was set to before; the
// best fit is used. A process that uses the server's clock may have read it late.
func (r *record) made(c claimed) int64 {
	off := func(at int64) int64 { return max(c.asked-at, at-c.at, 0) }
	best := c.Claimed
	for _, set := range r.clocks {
		if at := c.Claimed - set.Asked; set.At <= c.at && off(at) <= off(best) {
			best = at
		}
	}
	return min(max(best, c.asked), c.at)
}

// madeBy returns the latest time at which a claim can have been made: a task that a rescue took back was claimed
// before.
func (r *record) madeBy(p *past, c claimed) int64 {
	made := r.made(c)
	for _, x := range p.releases {
		if x.Token == c.Token && x.Rescue && x.yes {
			made = min(made, x.answered)
		}
	}
	return made
}

// reset reports whether the server's clock was set in a span of time. The server notices after a moment, and
// processes that use its clock may take longer.
func (r *record) reset(from, until int64) bool {
	moment := int64(3 * time.Second)
	if r.resyncs {
		moment = int64(50 * time.Second) // they read it every 30 seconds, and later if it cannot be reached
	}
	return slices.ContainsFunc(r.clocks, func(e event) bool { return e.At >= from-moment && e.At <= until+moment })
}

// undecided reports whether nobody can tell which of two claims came first: they overlap, and their processes may have
// read the server's clock before and after it was set.
func (r *record) undecided(a, b claimed) bool {
	from, until := min(a.asked, b.asked), max(a.at, b.at)
	return r.resyncs && a.asked < b.at && b.asked < a.at && r.reset(from, until)
}

// ahead returns how far the server's clock was ahead of the machine's.
func (r *record) ahead(at int64) (by int64) {
	for _, set := range r.clocks {
		if set.At <= at {
			by = set.Asked
		}
	}
	return by
}

// over returns the earliest time at which a lease may have ended, or the end of time if never. A crash may have
// forgotten a lease whose claim was answered only after it.
func (r *record) over(p *past, c claimed) int64 {
	end := int64(math.MaxInt64)
	for _, x := range p.releases {
		if x.Token == c.Token && !x.no {
			end = min(end, x.asked)
		}
	}
	for _, crash := range r.crashes {
		if crash.until > c.asked {
			end = min(end, max(crash.from, c.asked))
		}
	}
	return end
}

// began returns when the task was first requested.
func (p *past) began() int64 {
	began := int64(math.MaxInt64)
	for _, e := range p.enqueues {
		began = min(began, e.asked)
	}
	return began
}

// ended returns the earliest time at which a task may have ended, or its key may have become free.
func (p *past) ended() int64 {
	end := int64(math.MaxInt64)
	for _, x := range p.releases {
		if !x.no && isEnd(x.State) {
			end = min(end, x.asked)
		}
	}
	for _, e := range p.edits {
		if e.op == "cancel" && !e.no {
			end = min(end, e.asked)
		}
	}
	return end
}

func isEnd(state string) bool {
	return state == "completed" || state == "cancelled" || state == "discarded"
}

func (p *past) retried() (n int) {
	for _, e := range p.edits {
		if e.op == "retry" && !e.no {
			n++
		}
	}
	return n
}

// added returns the enqueue that created the task, or nil if none certainly did.
func (p *past) added() *enqueued {
	for i := range p.enqueues {
		if e := &p.enqueues[i]; e.yes && e.result == "added" {
			return e
		}
	}
	return nil
}

// lastLed returns when a process last recorded that it leads.
func lastLed(name string) (at int64) {
	f, err := os.Open(name)
	if err != nil {
		return 0
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil {
		f.Seek(max(0, info.Size()-1<<20), 0)
	}
	for lines := bufio.NewReader(f); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return at
		}
		var e event
		if bytes.Contains(line, []byte(`"`+opLed+`"`)) && json.Unmarshal(line, &e) == nil && e.Op == opLed {
			at = e.At
		}
	}
}

// unseen reports whether somebody claimed the task and died before recording that: only the outcome of its rescue
// shows it.
func (p *past) unseen() bool {
	return slices.ContainsFunc(p.releases, func(x release) bool {
		return !slices.ContainsFunc(p.claims, func(l claimed) bool { return l.Token == x.Token })
	})
}
