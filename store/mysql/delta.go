package mysql

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/tuskqueue/tusk/store"
)

// delta is what a transaction adds to the sums. It is written as a row of its own, so that transactions do not wait for
// each other, and the leader adds it up.
type delta struct {
	counts map[counted]int64
	stats  map[minute]*store.Stat
	groups map[group]*failures
	ended  map[counted]*ended

	restored map[counted]*ended // tasks restored from an archive: not reported as ends

	rescued map[counted]*ended // tasks whose worker died, by their new state
	// Both, in the order in which they were stored; only for deltas that were read.
	told []toldEnds
}

// ended holds tasks of a queue that finished with one outcome.
type ended struct {
	last int64 // when the last of them was stored
	refs []ref
}

// counted is what tasks are counted by.
type counted struct {
	queue string
	state store.State
}

// minute is what statistics are summed up by.
type minute struct {
	at          int64 // the start of the minute, in microseconds since 1970
	queue, kind string
}

// group identifies a group of equal errors: a hash of queue, kind and fingerprint.
type group [16]byte

func groupOf(queue, kind, fingerprint string) (g group) {
	h := sha256.New()
	fmt.Fprintf(h, "%d %s %d %s %s", len(queue), queue, len(kind), kind, fingerprint)
	copy(g[:], h.Sum(nil))
	return g
}

// failures is what is known about a group. With a count of 0 it contains only changes in the number of waiting and
// dead tasks.
type failures struct {
	Queue, Kind, Fingerprint string
	Count, Waiting, Dead     int64
	First, Last              int64
	Sample                   []byte
	SampleTask               store.ID
}

// maxSample is how much of an error text is kept as the sample of its group.
const maxSample = 4 << 10

func (d *delta) count(queue string, state store.State, by int64) {
	if d.counts == nil {
		d.counts = map[counted]int64{}
	}
	at := counted{queue, state}
	if d.counts[at] += by; d.counts[at] == 0 {
		delete(d.counts, at)
	}
}

// stat returns the sum of a minute, to be added to.
func (d *delta) stat(queue, kind string, ended int64) *store.Stat {
	if d.stats == nil {
		d.stats = map[minute]*store.Stat{}
	}
	at := minute{ended - ended%time.Minute.Microseconds(), queue, kind}
	if d.stats[at] == nil {
		d.stats[at] = &store.Stat{At: instant(at.at), Queue: queue, Kind: kind}
	}
	return d.stats[at]
}

// finish lists tasks that have finished.
func (d *delta) finish(queue string, state store.State, refs ...ref) {
	listEnds(&d.ended, counted{queue, state}, refs)
}

// restore lists finished tasks that an archive has restored.
func (d *delta) restore(queue string, state store.State, refs ...ref) {
	listEnds(&d.restored, counted{queue, state}, refs)
}

// rescue lists tasks that were taken back from a dead worker.
func (d *delta) rescue(queue string, state store.State, refs ...ref) {
	listEnds(&d.rescued, counted{queue, state}, refs)
}

func listEnds(in *map[counted]*ended, of counted, refs []ref) {
	if *in == nil {
		*in = map[counted]*ended{}
	}
	if (*in)[of] == nil {
		(*in)[of] = &ended{}
	}
	(*in)[of].refs = append((*in)[of].refs, refs...)
}

func (d *delta) group(g group) *failures {
	if d.groups == nil {
		d.groups = map[group]*failures{}
	}
	if d.groups[g] == nil {
		d.groups[g] = &failures{}
	}
	return d.groups[g]
}

// regroup adds to the waiting and dead tasks of a group.
func (d *delta) regroup(g group, waiting, dead int64) {
	if g == (group{}) {
		return
	}
	d.group(g).Waiting += waiting
	d.group(g).Dead += dead
}

// blame counts a failed attempt.
func (d *delta) blame(o *store.Outcome, ended int64) group {
	g := groupOf(o.Task.Queue, o.Task.Kind, o.Fingerprint)
	sample := o.Error
	if len(sample) > maxSample {
		cut := maxSample
		for cut > 0 && !utf8.RuneStart(sample[cut]) {
			cut--
		}
		sample = sample[:cut]
	}
	d.group(g).add(&failures{Queue: o.Task.Queue, Kind: o.Task.Kind, Fingerprint: o.Fingerprint, Count: 1,
		First: ended, Last: ended, Sample: []byte(sample), SampleTask: o.Task.ID})
	return g
}

// add merges what is known about a group. The later sample is kept.
func (f *failures) add(o *failures) {
	f.Waiting += o.Waiting
	f.Dead += o.Dead
	if o.Count == 0 {
		return
	}
	if f.Count == 0 || o.First < f.First {
		f.First = o.First
	}
	if f.Count == 0 || o.Last >= f.Last {
		f.Last, f.Sample, f.SampleTask = o.Last, o.Sample, o.SampleTask
	}
	f.Queue, f.Kind, f.Fingerprint = o.Queue, o.Kind, o.Fingerprint
	f.Count += o.Count
}

// deltaJSON is the JSON of a delta.
type deltaJSON struct {
	Counts []countJSON `json:"counts,omitempty"`
	Stats  []statJSON  `json:"stats,omitempty"`
	Groups []groupJSON `json:"errors,omitempty"`
	Ended  []endedJSON `json:"ended,omitempty"`

	Restored []endedJSON `json:"restored,omitempty"`
	Rescued  []endedJSON `json:"rescued,omitempty"`
}

type endedJSON struct {
	Queue string      `json:"queue"`
	State store.State `json:"state"`
	Tasks []byte      `json:"tasks"`
}

type countJSON struct {
	Queue string      `json:"queue"`
	State store.State `json:"state"`
	Tasks int64       `json:"tasks"`
}

type statJSON struct {
	At        int64  `json:"at"`
	Queue     string `json:"queue"`
	Kind      string `json:"kind"`
	Completed int64  `json:"completed,omitempty"`
	Failed    int64  `json:"failed,omitempty"`
	Discarded int64  `json:"discarded,omitempty"`
	Cancelled int64  `json:"cancelled,omitempty"`
	Waited    []byte `json:"waited"`
	Ran       []byte `json:"ran"`
}

type groupJSON struct {
	ID          []byte   `json:"id"`
	Queue       string   `json:"queue,omitempty"`
	Kind        string   `json:"kind,omitempty"`
	Fingerprint string   `json:"fingerprint,omitempty"`
	Count       int64    `json:"count,omitempty"`
	Waiting     int64    `json:"waiting,omitempty"`
	Dead        int64    `json:"dead,omitempty"`
	First       int64    `json:"first,omitempty"`
	Last        int64    `json:"last,omitempty"`
	Sample      []byte   `json:"sample,omitempty"`
	SampleTask  store.ID `json:"sample_task,omitzero"`
}

// encode returns a delta as it is stored, or nil if it changes nothing.
func (d *delta) encode() []byte {
	var j deltaJSON
	for at, n := range d.counts {
		j.Counts = append(j.Counts, countJSON{at.queue, at.state, n})
	}
	for at, s := range d.stats {
		j.Stats = append(j.Stats, statJSON{at.at, at.queue, at.kind, s.Completed, s.Failed, s.Discarded, s.Cancelled,
			s.Waited.Encode(), s.Ran.Encode()})
	}
	for g, f := range d.groups {
		if f.Count != 0 || f.Waiting != 0 || f.Dead != 0 {
			j.Groups = append(j.Groups, groupJSON{g[:], f.Queue, f.Kind, f.Fingerprint, f.Count, f.Waiting, f.Dead, f.First,
				f.Last, f.Sample, f.SampleTask})
		}
	}
	j.Ended, j.Restored, j.Rescued = endsJSON(d.ended), endsJSON(d.restored), endsJSON(d.rescued)
	if j.Counts == nil && j.Stats == nil && j.Groups == nil && j.Ended == nil && j.Restored == nil {
		return nil
	}
	body, err := json.Marshal(j)
	if err != nil {
		panic(err) // numbers, texts and bytes can always be encoded
	}
	return body
}

func endsJSON(all map[counted]*ended) (j []endedJSON) {
	for of, e := range all {
		j = append(j, endedJSON{of.queue, of.state, encodeSpans(spansOf(e.refs))})
	}
	return j
}

// read adds a delta that was stored at the given time.
func (d *delta) read(at int64, body []byte) error {
	var j deltaJSON
	if err := json.Unmarshal(body, &j); err != nil {
		return err
	}
	for _, c := range j.Counts {
		d.count(c.Queue, c.State, c.Tasks)
	}
	for _, s := range j.Stats {
		one := store.Stat{Completed: s.Completed, Failed: s.Failed, Discarded: s.Discarded, Cancelled: s.Cancelled}
		if err := one.Waited.Decode(s.Waited); err != nil {
			return err
		}
		if err := one.Ran.Decode(s.Ran); err != nil {
			return err
		}
		d.stat(s.Queue, s.Kind, s.At).Add(&one)
	}
	for _, e := range j.Rescued {
		if err := d.tell(at, e, true); err != nil {
			return err
		}
	}
	for _, e := range j.Ended {
		if err := d.list(at, e); err != nil {
			return err
		}
		if err := d.tell(at, e, false); err != nil {
			return err
		}
	}
	for _, e := range j.Restored {
		if err := d.list(at, e); err != nil {
			return err
		}
	}
	for _, g := range j.Groups {
		var id group
		copy(id[:], g.ID)
		d.group(id).add(&failures{g.Queue, g.Kind, g.Fingerprint, g.Count, g.Waiting, g.Dead, g.First, g.Last, g.Sample,
			g.SampleTask})
	}
	return nil
}

// list adds finished tasks from a delta that was stored at the given time.
func (d *delta) list(at int64, e endedJSON) error {
	spans, err := decodeSpans(e.Tasks)
	if err != nil {
		return err
	}
	d.finish(e.Queue, e.State, refsOf(spans)...)
	of := d.ended[counted{e.Queue, e.State}]
	of.last = max(of.last, at)
	return nil
}
