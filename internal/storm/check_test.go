//go:build unix

package storm

import (
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// checker compares a history with what the database says at its end.
type checker struct {
	*storm
	*record
	stored map[tusk.ID]*tusk.TaskInfo
}

// check looks for violations of the invariants. What is called sure took place;
// what is called possible may have. A violation is what no choice explains.
func (s *storm) check() {
	s.t.Helper()
	events, err := readHistory(s.fleet.dir)
	if err != nil {
		s.t.Fatal(err)
	}
	c := &checker{s, newRecord(events), map[tusk.ID]*tusk.TaskInfo{}}
	c.read()
	c.order()
	for _, e := range c.alarms {
		c.violation(e.Err, "%s", e.Text)
	}
	claims, stale := 0, 0
	for _, p := range c.tasks {
		claims += len(p.claims)
		for _, x := range p.releases {
			if x.no {
				stale++
			}
		}
		c.lost(p)
		c.unexpected(p)
		c.finishedTwice(p)
		c.leasedTwice(p)
		c.attempts(p)
		c.tooEarly(p)
		c.needs(p)
	}
	c.buried()
	c.effects()
	c.transactions()
	c.keys()
	c.newest()
	c.serial()
	c.limited()
	c.ticks()
	c.leaders()
	c.sums()
	c.growth()
	c.t.Logf("%d events of %d tasks, %d claims, %d late outcomes refused, %d terms", len(events), len(c.tasks), claims, stale, c.terms())
}

func (c *checker) read() {
	for f := (tusk.Filter{Detail: true, Limit: store.MaxPage}); ; {
		page, err := c.client.List(c.t.Context(), f)
		if err != nil {
			c.t.Fatal(err)
		}
		for i := range page {
			c.stored[page[i].ID] = &page[i]
		}
		if len(page) < f.Limit {
			return
		}
		f.Before = page[len(page)-1].ID
	}
}

// lost is I1: what was acknowledged is there, and has ended.
func (c *checker) lost(p *past) {
	e := p.added()
	if e == nil {
		return
	}
	switch t := c.stored[p.id]; {
	case t == nil:
		c.violation("I1", "task %s of kind %s in queue %s was acknowledged and is lost", p.id, e.Kind, e.Queue)
	case !t.State.Finished():
		c.violation("I1", "task %s of kind %s in queue %s is %v at the end", p.id, e.Kind, e.Queue, t.State)
	case t.State == tusk.StateDiscarded && e.Kind != doDoomed:
		c.violation("I1", "task %s of kind %s was discarded: %s", p.id, e.Kind, t.Reason)
	case t.State == tusk.StateCompleted && e.Kind == doDoomed:
		c.violation("I1", "task %s gave up and is completed", p.id)
	}
}

// unexpected is I2: what is there was asked for, and not taken back.
func (c *checker) unexpected(p *past) {
	if c.stored[p.id] == nil {
		return
	}
	for _, e := range p.enqueues {
		if !e.no {
			return
		}
	}
	c.violation("I2", "task %s is stored: it was enqueued by nobody, or that was taken back (%d)", p.id, len(p.enqueues))
}

// finishedTwice is I3 and I5: of all outcomes of a task one ends it; each token
// is accepted once, and none after another claim.
func (c *checker) finishedTwice(p *past) {
	ends := 0
	tokens := map[string]int{}
	for _, x := range p.releases {
		if !x.yes {
			continue
		}
		if isEnd(x.State) {
			ends++
		}
		if tokens[x.Token]++; tokens[x.Token] == 2 {
			c.violation("I3", "task %s: two outcomes under one token were accepted", p.id)
		}
		at := slices.IndexFunc(p.claims, func(l claimed) bool { return l.Token == x.Token })
		if at >= 0 && at+1 < len(p.claims) && p.claims[at+1].at < x.asked {
			c.violation("I5", "task %s: an outcome (%s) was accepted %v after another claim", p.id, x.State, time.Duration(x.asked-p.claims[at+1].at))
		}
	}
	if ends > 1+p.retried() {
		c.violation("I3", "task %s ended %d times", p.id, ends)
	}
	if t := c.stored[p.id]; t != nil {
		done := 0
		for _, a := range t.Detail.Attempts {
			if a.Outcome == tusk.StateCompleted {
				done++
			}
		}
		if done > 1 || done == 0 && t.State == tusk.StateCompleted {
			c.violation("I3", "task %s is %v and has %d completed attempts", p.id, t.State, done)
		}
	}
}

// leasedTwice is I4: between two claims there is an end of the first lease.
func (c *checker) leasedTwice(p *past) {
	for i := 1; i < len(p.claims); i++ {
		a, b := p.claims[i-1], p.claims[i]
		if a.Token != b.Token && c.over(p, a) > b.at {
			c.violation("I4", "task %s (%s) was claimed twice within %v, and nothing ended the first lease", p.id, a.Kind, time.Duration(b.at-a.at))
		}
	}
}

// buried is I4, too: a worker whose tasks were taken back claims nothing more
// under its name.
func (c *checker) buried() {
	buried := map[string]int64{}
	workers := map[string]string{} // by token
	for _, p := range c.tasks {
		for _, l := range p.claims {
			workers[l.Token] = l.worker
		}
	}
	for _, p := range c.tasks {
		for _, x := range p.releases {
			if w := workers[x.Token]; w != "" && x.yes && x.Rescue && (buried[w] == 0 || x.answered < buried[w]) {
				buried[w] = x.answered
			}
		}
	}
	for _, p := range c.tasks {
		for _, l := range p.claims {
			if at := buried[l.worker]; at != 0 && l.asked > at {
				c.violation("I4", "worker %s claimed %s %v after its tasks had been taken back", l.worker, p.id, time.Duration(l.asked-at))
			}
		}
	}
}

// attempts is I13: attempts and crashes are counted as outcomes say.
func (c *checker) attempts(p *past) {
	if p.retried() > 0 || p.unseen() {
		return
	}
	for i, b := range p.claims {
		if b.Queue == queueKeyed {
			return // a replacement counts anew
		}
		if i == 0 {
			continue
		}
		a := p.claims[i-1]
		var of []release
		for _, x := range p.releases {
			if x.Token == a.Token && !x.no {
				of = append(of, x)
			}
		}
		if len(of) == 1 && of[0].yes && (b.Attempt != of[0].Attempt+1 || b.Crashes != of[0].Crashes) {
			c.violation("I13", "task %s: an outcome left %d attempts and %d crashes, and the next claim has %d and %d", p.id, of[0].Attempt, of[0].Crashes, b.Attempt, b.Crashes)
		}
		for _, x := range of {
			if x.Crashes > a.Crashes && !x.Rescue {
				c.violation("I13", "task %s: a worker that lives counted a crash", p.id)
			}
		}
	}
}

// tooEarly is I14: nothing is claimed before its time. The engine's instant of a claim
// may be older than that of the enqueue: a claim that was held up sees what came
// meanwhile. So the end of the claim counts, by the clock that all share here.
func (c *checker) tooEarly(p *past) {
	e := p.added()
	for i, l := range p.claims {
		if early := time.Duration(l.Due - l.at); early > 0 {
			c.violation("I14", "task %s was claimed %v before its time", p.id, early)
		}
		if i == 0 && e != nil && e.Key == "" && e.Delay > 0 && l.at-e.asked < e.Delay {
			c.violation("I14", "task %s was to wait for %v and was claimed after %v", p.id, time.Duration(e.Delay), time.Duration(l.at-e.asked))
		}
	}
}

// needs is I10: a task that needs others runs after them, and only if they
// completed.
func (c *checker) needs(p *past) {
	e := p.added()
	if e == nil || len(e.Needs) == 0 {
		return
	}
	for _, id := range e.Needs {
		if len(p.claims) > 0 && c.of(id).ended() > p.claims[0].at {
			c.violation("I10", "task %s was claimed before %s, which it needs, had ended", p.id, id)
		}
		if child, parent := c.stored[p.id], c.stored[id]; child != nil && child.State == tusk.StateCompleted && parent != nil && parent.State != tusk.StateCompleted {
			c.violation("I10", "task %s is completed, and %s, which it needs, is %v", p.id, id, parent.State)
		}
	}
}

// effects is I6: effects in the completing transaction are there once, others at
// least once.
func (c *checker) effects() {
	inside := map[string]int{}
	for _, id := range c.column("storm_effect") {
		inside[id]++
	}
	for id, t := range c.stored {
		n := inside[id.String()]
		done := t.State == tusk.StateCompleted
		switch {
		case t.Kind == doTx && (done && n != 1 || !done && n != 0):
			c.violation("I6", "task %s is %v with %d effects in its transaction", id, t.State, n)
		case t.Kind == doEffect && done && len(c.of(id).effects) == 0:
			c.violation("I6", "task %s is completed without its effect", id)
		case t.Kind == doEcho && done && !sameJSON(t.Detail.Output, t.Args):
			c.violation("I6", "task %s has the args %.80s and the output %.80s", id, t.Args, t.Detail.Output)
		}
	}
}

// transactions is I1 and I2 for what was enqueued in transactions of the user's.
func (c *checker) transactions() {
	rows := map[string]bool{}
	for _, id := range c.column("storm_ledger") {
		rows[id] = true
	}
	for id, p := range c.tasks {
		for _, e := range p.enqueues {
			if there := c.stored[id] != nil; e.how == "tx" && there != rows[id.String()] {
				c.violation("I2", "task %s and its transaction parted: task %v, row %v", id, there, rows[id.String()])
			}
		}
	}
}

func (c *checker) column(table string) (ids []string) {
	rows, err := c.ground.admin.QueryContext(c.t.Context(), "select id from "+table)
	if err != nil {
		c.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			c.t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		c.t.Fatal(err)
	}
	return ids
}

// keys is I7: the tasks of one key are never unfinished at the same time.
func (c *checker) keys() {
	live := map[string][]interval{}
	for _, p := range c.tasks {
		e := p.added()
		if e == nil || e.Key == "" {
			continue
		}
		end := p.ended()
		if e.Conflict == int8(tusk.Rerun) { // any outcome may make way for what is newer
			for _, x := range p.releases {
				if !x.no {
					end = min(end, x.asked)
				}
			}
		}
		live[e.Key] = append(live[e.Key], interval{e.answered, end, p.id})
	}
	for key, all := range live {
		c.disjoint("I7", "key "+key, all)
	}
}

// newest is A10: the newest version of a source that was acknowledged has been run.
func (c *checker) newest() {
	told, seen := map[string]int64{}, map[string]int64{}
	cancelled := map[string]bool{}
	for _, p := range c.tasks {
		for _, e := range p.enqueues {
			if e.Conflict == int8(tusk.Rerun) && e.yes && (e.result == "added" || e.result == "replaced" || e.result == "awaiting") {
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
			c.violation(of, "%s: %s and %s at the same time, for %v", what, a.id, b.id, time.Duration(min(a.until, b.until, c.ends)-b.from))
		}
	}
}

// held returns the spans in which a queue's tasks surely were with a worker.
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

// serial is I8: one after another, in the order in which they were enqueued.
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
			if a.added().answered < b.added().asked && len(b.claims) > 0 && a.ended() > b.claims[0].at {
				c.violation("I8", "partition %s: %s began before %s, which came first, had ended", part, b.id, a.id)
			}
		}
	}
}

// limited is I9: never more at a time than the limit says.
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

// ticks is I11: each tick of the schedule fired once, and none was left out.
func (c *checker) ticks() {
	var ticks []time.Time
	for _, t := range c.stored {
		if t.Schedule == "clock" {
			ticks = append(ticks, t.Tick)
		}
	}
	slices.SortFunc(ticks, time.Time.Compare)
	for i := 1; i < len(ticks); i++ {
		if d := ticks[i].Sub(ticks[i-1]); d != time.Second {
			c.violation("I11", "ticks %v and %v are %v apart", ticks[i-1], ticks[i], d)
		}
	}
	if least := int(c.lasts.Seconds() / 2); len(ticks) < least {
		c.violation("I11", "%d ticks, want at least %d", len(ticks), least)
	}
}

// leaders is I12: a term has one leader, and writes nothing when a later one has begun.
func (c *checker) leaders() {
	who := map[int64]string{}
	began := map[int64]int64{}
	for _, e := range c.leads {
		if who[e.Term] == "" {
			who[e.Term], began[e.Term] = e.Who, e.At
		}
		if who[e.Term] != e.Who {
			c.violation("I12", "term %d has two leaders, %s and %s", e.Term, who[e.Term], e.Who)
		}
	}
	for _, chore := range c.chores {
		for term, at := range began {
			if term > chore.Term && at < chore.asked {
				c.violation("I12", "%s of term %d wrote %v after term %d had begun", chore.Text, chore.Term, time.Duration(chore.asked-at), term)
				break
			}
		}
	}
}

func (c *checker) terms() int {
	terms := map[int64]bool{}
	for _, e := range c.leads {
		terms[e.Term] = true
	}
	return len(terms)
}

// sums is I15: what is counted is what is there.
func (c *checker) sums() {
	left, err := unfinished(c.t.Context(), c.client)
	if err != nil {
		c.t.Fatal(err)
	}
	var open, done int64
	for _, t := range c.stored {
		if !t.State.Finished() {
			open++
		}
		if t.State == tusk.StateCompleted {
			done++
		}
	}
	if left != open {
		c.violation("I15", "%d unfinished tasks are counted and %d are there", left, open)
	}
	if n := c.completed(); n != done {
		c.violation("I15", "%d completions are counted and %d tasks are completed", n, done)
	}
}

// growth is I16: who has lived through the storm uses no more than a rest needs.
func (c *checker) growth() {
	for _, all := range c.vitals {
		last := all[len(all)-1]
		if last.At < c.ends-int64(5*time.Second) {
			continue // died before
		}
		if goroutines, files := last.Items[0].Attempt, last.Items[0].Crashes; goroutines > 150 || files > 100 {
			c.violation("I16", "process %s has %d goroutines and %d open files at rest", last.Who, goroutines, files)
		}
	}
}

func sameJSON(a, b []byte) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}
