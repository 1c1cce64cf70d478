package postgres

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// completion is a row of tusk.outcome: tasks that were completed together, in runs of consecutive
// ids.
type completion struct {
	xid, lane, lo       int64
	token               store.Token
	worker              store.ID
	claimedAt, finished time.Time
	queue               string
	runs                []idRun
	ago                 array
	tasks               int
}

// idRun is a run of consecutive ids: the first one and their number.
type idRun struct {
	first store.ID
	count int
}

// id returns one of the ids of a run.
func (r idRun) id(i int) store.ID {
	r.first[15] += byte(i)
	return r.first
}

// duePage is a page of flushes that are read together.
type duePage struct {
	flushes []*completion
	tasks   int
	lo      int64 // the lowest xid of their tasks
}

// add adds a row of due_flushes.
func (p *duePage) add(raw [][]byte) {
	f := &completion{xid: int64Of(raw[0]), lane: int64Of(raw[1]), token: idOf(raw[2]), worker: idOf(raw[3]),
		claimedAt: timeOf(raw[4]),
		finished:  timeOf(raw[5]), lo: int64Of(raw[6]), queue: string(raw[10])}
	firsts, counts := arrayOf(raw[7]), arrayOf(raw[8])
	for range firsts.n {
		run := idRun{idOf(firsts.next()), 1}
		if raw[8] != nil {
			run.count = int(int32Of(counts.next()))
		}
		f.runs = append(f.runs, run)
		f.tasks += run.count
	}
	f.ago = arrayOf(bytesOf(raw[9]))
	if len(p.flushes) == 0 || f.lo < p.lo {
		p.lo = f.lo
	}
	p.tasks += f.tasks
	p.flushes = append(p.flushes, f)
}

// ended is a run of tasks that ended in one flush, and when each of them ended.
type ended struct {
	idRun
	in *completion
	at []time.Time
}

// ends returns the runs of a flush, with the times at which their tasks ended.
func (f *completion) ends() (runs []ended) {
	ago, at := f.ago, make([]time.Time, 0, f.tasks)
	for _, run := range f.runs {
		begin := len(at)
		for range run.count {
			end := f.finished
			if ago.n > 0 {
				end = end.Add(-time.Duration(int32Of(ago.next())) * time.Millisecond)
			}
			if end.Before(f.claimedAt) {
				end = f.claimedAt
			}
			at = append(at, end)
		}
		runs = append(runs, ended{run, f, at[begin:]})
	}
	return runs
}

// readFlushes returns the tasks of flushes. It reads tasks in packs by the run, and the others by
// their ids.
func (s *Store) readFlushes(ctx context.Context, p *duePage) ([]store.Task, error) {
	var singles, runs []ended
	for _, f := range p.flushes {
		for _, run := range f.ends() {
			if run.count == 1 {
				singles = append(singles, run)
			} else {
				runs = append(runs, run)
			}
		}
	}
	tasks := make([]store.Task, 0, p.tasks)
	tasks, rest, err := s.readSingles(ctx, p, singles, tasks)
	if err == nil {
		tasks, rest, err = s.readPacks(ctx, p, append(runs, rest...), tasks)
	}
	if err == nil { // packs may have been taken apart since
		var apart []ended
		for _, run := range rest {
			for i := range run.count {
				apart = append(apart, ended{idRun{run.id(i), 1}, run.in, run.at[i : i+1]})
			}
		}
		tasks, rest, err = s.readSingles(ctx, p, apart, tasks)
	}
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("task %v was completed and is not in the log", rest[0].first)
	}
	return tasks, err
}

// readSingles reads tasks that have a row of their own, and takes the latest row of each. It
// returns the runs for which there is no row.
func (s *Store) readSingles(
	ctx context.Context, p *duePage, runs []ended, tasks []store.Task,
) ([]store.Task, []ended, error) {
	if len(runs) == 0 {
		return tasks, nil, nil
	}
	ids, ends := make(uuids, len(runs)), make(map[store.ID]*ended, len(runs))
	for i := range runs {
		ids[i], ends[runs[i].first] = runs[i].first, &runs[i]
	}
	type found struct {
		at     int
		xid, n int64
	}
	latest := make(map[store.ID]found, len(runs))
	err := s.queryPinned(ctx, s.sql["due_rows"], func(raw [][]byte) error {
		var t store.Task
		readTask(&t, raw)
		f := found{len(tasks), int64Of(raw[17]), int64Of(raw[18])}
		before, twice := latest[t.ID]
		switch {
		case twice && cmp.Or(cmp.Compare(f.xid, before.xid), cmp.Compare(f.n, before.n)) < 0:
			return nil
		case twice:
			f.at = before.at
		default:
			tasks = append(tasks, store.Task{})
		}
		t.Attempt++
		latest[t.ID], tasks[f.at] = f, ends[t.ID].completed(t, 0)
		return nil
	}, ids, p.lo)
	var rest []ended
	for _, run := range runs {
		if _, known := latest[run.first]; !known {
			rest = append(rest, run)
		}
	}
	return tasks, rest, err
}

// readPacks reads runs of tasks from packs. It returns the runs that are in no pack.
func (s *Store) readPacks(
	ctx context.Context, p *duePage, runs []ended, tasks []store.Task,
) ([]store.Task, []ended, error) {
	if len(runs) == 0 {
		return tasks, nil, nil
	}
	firsts, counts := make(uuids, len(runs)), make([]int32, len(runs))
	for i, run := range runs {
		firsts[i], counts[i] = run.first, int32(min(run.count, math.MaxInt16))
	}
	known := make([]bool, len(runs))
	err := s.queryPinned(ctx, s.sql["due_packs"], func(raw [][]byte) error {
		place := int64Of(raw[0]) - 1
		run, lane, args := runs[place], int64Of(raw[1]), arrayOf(raw[7])
		known[place] = true
		t := store.Task{Priority: priorityOf(lane), Kind: string(raw[2]), EnqueuedAt: timeOf(raw[3]), RunAt: timeOf(raw[3]),
			ExpiresAt: timeOf(raw[4]), Tags: textsOf(raw[5]), Settings: bytesOf(raw[6]), Attempt: 1}
		for i := range run.count {
			t.ID, t.Args = run.id(i), bytesOf(args.next())
			tasks = append(tasks, run.completed(t, i))
		}
		return nil
	}, firsts, counts, p.lo)
	var rest []ended
	for i, run := range runs {
		if !known[i] {
			rest = append(rest, run)
		}
	}
	return tasks, rest, err
}

// completed returns the i-th task of a run of completed tasks.
func (r *ended) completed(t store.Task, i int) store.Task {
	t.Queue, t.State, t.Crashes, t.ClaimedAt, t.FinishedAt = r.in.queue, store.Completed, 0, r.in.claimedAt, r.at[i]
	t.Detail = completedBy(&t, r.in.worker)
	return t
}

// The first byte of a receipt is its type.
const (
	receiptOfDead    = 'd'
	receiptOfFlushes = 'f'
)

var errReceipt = errors.New("the receipt is damaged")

// deadReceipt names dead tasks and the transactions that ended them.
type deadReceipt struct {
	IDs  []store.ID
	XIDs []int64
}

func (r *deadReceipt) encode() []byte {
	b := []byte{receiptOfDead}
	for i, id := range r.IDs {
		b = binary.BigEndian.AppendUint64(append(b, id[:]...), uint64(r.XIDs[i]))
	}
	return b
}

// receipt names the flushes of a page, with their tasks.
func (p *duePage) receipt() []byte {
	b := []byte{receiptOfFlushes}
	for _, f := range p.flushes {
		b = binary.BigEndian.AppendUint64(b, uint64(f.xid))
		b = binary.BigEndian.AppendUint64(b, uint64(f.lane))
		b = append(b, f.token[:]...)
		b = binary.BigEndian.AppendUint64(b, uint64(f.finished.UnixMicro()))
		b = binary.BigEndian.AppendUint32(b, uint32(len(f.runs)))
		for _, run := range f.runs {
			b = append(append(b, run.first[:]...), byte(run.count-1))
		}
	}
	return b
}

const (
	flushSize = 44 // bytes of a flush in a receipt, without its runs
	runSize   = 17 // bytes of a run
)

// readFlushReceipt returns the flushes that a receipt names.
func readFlushReceipt(b []byte) (p duePage, err error) {
	for len(b) > 0 {
		if len(b) < flushSize {
			return p, errReceipt
		}
		f := &completion{xid: int64(binary.BigEndian.Uint64(b)), lane: int64(binary.BigEndian.Uint64(b[8:])),
			token:    idOf(b[16:32]),
			finished: time.UnixMicro(int64(binary.BigEndian.Uint64(b[32:]))).UTC()}
		runs := int(binary.BigEndian.Uint32(b[40:]))
		if b = b[flushSize:]; runs > len(b)/runSize {
			return p, errReceipt
		}
		for range runs {
			run := idRun{idOf(b), int(b[16]) + 1}
			f.runs = append(f.runs, run)
			f.tasks += run.count
			b = b[runSize:]
		}
		p.flushes = append(p.flushes, f)
	}
	return p, nil
}
