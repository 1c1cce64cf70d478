package postgres

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	askLine    = 5 * time.Second  // how often a process asks in which table tasks get in line
	restLine   = 10 * time.Second // how long a table has had no task when it is truncated
	fullLine   = 1 << 20          // bytes of a table after which the other one is used
	moveAtOnce = 2000             // tasks that one transaction moves
	mostLeft   = 5 * moveAtOnce   // tasks are not moved out of a table that has more than this
	mostBytes  = 8 << 20          // or more bytes of args than this; a transaction moves about as many
	trustLine  = 2 * askLine      // how long a process relies on an answer, at most restLine
)

// lineTables are the tables in which tasks get in line, by the number that line_table returns.
var lineTables = []string{"waiting", "line_1", "line_2"}

// lines is what the engine knows about these tables. The number may be out of date: a task may be in any of them.
type lines struct {
	no       atomic.Int32
	answered atomic.Int64 // when it asked for that number, in nanoseconds
	asked    atomic.Int64 // when it last asked for the number, in nanoseconds
	looks    atomic.Int64 // how often the leader has found something to do

	mu    sync.Mutex
	empty resting
	rest  time.Duration // restLine, unless a test has changed it
}

// resting says since when the table that is not in use has been empty, as far as a leader has seen.
type resting struct {
	term  int64
	no    int
	since time.Time
}

// onEachLine returns a query for the rows of a query on each of the tables.
func onEachLine(text string) string {
	parts := make([]string, len(lineTables))
	for i, table := range lineTables {
		parts[i] = "  (" + strings.ReplaceAll(text, "{line}", table) + ")"
	}
	return strings.Join(parts, "\n  union all\n")
}

// lined returns a statement by which tasks get in line. If the answer is old, that is in waiting, because the leader
// may be about to truncate the table that was in use.
func (s *Store) lined(name string) string {
	table := lineTables[0]
	if !passed(s.lines.answered.Load(), trustLine) {
		table = lineTables[s.lines.no.Load()]
	}
	return strings.Replace(s.sql[name], "{line}", table, 1)
}

// know records the answer to a question that was asked at a time.
func (l *lines) know(no int, at time.Time) {
	l.no.Store(int32(no))
	l.answered.Store(at.UnixNano()) // last, since lined reads it first
}

// asksLine reports whether it is time to ask for the table again, and that the caller is the one to ask.
func (s *Store) asksLine() bool {
	asked := s.lines.asked.Load()
	return passed(asked, askLine) && s.lines.asked.CompareAndSwap(asked, time.Now().UnixNano())
}

// passed reports whether a time, in nanoseconds, is at least that long ago or, because the clock was set back, in the
// future.
func passed(at int64, least time.Duration) bool {
	now := time.Now().UnixNano()
	return now < at || now-at >= int64(least)
}

// learnLineApart asks in which table tasks get in line, on a connection of the engine's own. Its caller is in a user's
// transaction, and does not wait.
func (s *Store) learnLineApart() {
	if !s.asksLine() {
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), spareAfter)
		defer cancel()
		_ = s.own(ctx, func(c *pgxpool.Conn) error {
			s.learnLine(ctx, driverSession{c})
			return nil
		})
	}()
}

// learnLine asks in which table tasks get in line. If that fails, the last answer stands.
func (s *Store) learnLine(ctx context.Context, c session) {
	var no int
	at := time.Now()
	err := c.each(ctx, func(scan func(...any) error) error { return scan(&no) }, s.sql["line_table"])
	if err == nil && no < len(lineTables) {
		s.lines.know(no, at)
	}
}

// lineTable is the state of one of the two tables.
type lineTable struct {
	no   int
	size int64 // in bytes, with large args
}

// emptyLines keeps dead rows from accumulating in lines. It truncates the table that is not in use once that has had no
// task for a while, and then lets tasks get in line there. It waits because a statement that began before the last task
// was granted may look for that task later, and would not find it anywhere.
func (s *Store) emptyLines(ctx context.Context, term int64) error {
	var used, other lineTable
	may, at := false, time.Now()
	err := s.read(ctx, s.pinned(
		s.do("leads_still", term),
		s.do("line_tables").into(func(raw [][]byte) error {
			used.no, may = int(int32Of(raw[0])), raw[3][0] != 0
			one, two := lineTable{1, int64Of(raw[1])}, lineTable{2, int64Of(raw[2])}
			switch used.no {
			case 1:
				used, other = one, two
			case 2:
				used, other = two, one
			}
			return nil
		})))
	if err != nil {
		return err
	}
	s.lines.know(used.no, at)
	full := used.size >= fullLine
	switch {
	case used.no == 0: // an older program may run
		s.lines.restart()
		for no := 1; no < len(lineTables) && err == nil; no++ {
			err = s.moveLine(ctx, term, no, used.no)
		}
		return unlessBusy(err)
	case !may: // Check warns about that
		return nil
	case other.size == 0:
		s.lines.restart()
		if !full {
			return nil
		}
		s.lines.looks.Add(1)
		at = time.Now()
		if err = s.exec(ctx, "next_line_table"); err == nil {
			s.lines.know(other.no, at)
		}
		return err
	}
	tasks, _, err := s.leftInLine(ctx, other.no)
	switch {
	case err != nil:
	case tasks == 0:
		s.lines.looks.Add(1)
		if s.lines.rested(term, other.no) {
			err = s.inLine(ctx, term, other.no, used.no, s.do("lock_whole_line"), s.do("look_briefly"), s.do("empty_line"))
			if err == nil {
				s.lines.restart()
			}
			err = unlessBusy(err)
		}
	case full:
		s.lines.restart()
		err = unlessBusy(s.moveLine(ctx, term, other.no, used.no))
	default:
		s.lines.restart()
	}
	return err
}

// rested reports whether a table has been empty for long enough, as far as the leader has seen.
func (l *lines) rested(term int64, no int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := (resting{term: term, no: no, since: l.empty.since}); now != l.empty || now.since.IsZero() {
		l.empty = resting{term, no, time.Now()}
	}
	return time.Since(l.empty.since) >= l.rest
}

// restart forgets that a table was empty.
func (l *lines) restart() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.empty = resting{}
}

// left records that tasks have just left a table, so that it was not empty until now.
func (l *lines) left(no int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.empty.no == no {
		l.empty = resting{}
	}
}

// leftInLine returns how many tasks a table has, and the bytes of their args. It counts up to one more than may move.
func (s *Store) leftInLine(ctx context.Context, no int) (tasks int, size int64, err error) {
	text := strings.Replace(s.sql["left_in_line"], "{from}", lineTables[no], 1)
	err = s.queryText(ctx, text, func(raw [][]byte) error {
		tasks, size = int(int64Of(raw[0])), int64Of(raw[1])
		return nil
	}, mostLeft+1)
	return tasks, size, err
}

// moveLine moves the tasks of a table to another one, if they are few and small. To waiting, it moves as many as it can
// in a few transactions. Their places in line stay.
func (s *Store) moveLine(ctx context.Context, term int64, from, to int) error {
	tasks, size, err := s.leftInLine(ctx, from)
	if err != nil || to != 0 && (tasks > mostLeft || size > mostBytes) {
		return err
	}
	for round := 0; tasks > 0 && round <= mostLeft/moveAtOnce; round++ {
		s.lines.looks.Add(1)
		moved := 0
		err = s.inLine(ctx, term, from, to, s.do("lock_line"), s.do("move_line", moveAtOnce, mostBytes).into(
			func(raw [][]byte) error {
				moved = int(int64Of(raw[0]))
				return nil
			}))
		if err != nil || moved == 0 {
			return err
		}
		tasks -= moved
	}
	return nil
}

// inLine takes steps that lock a table and change it. It gives up soon, because all others queue up behind a lock that
// waits.
func (s *Store) inLine(ctx context.Context, term int64, from, to int, steps ...step) error {
	words := strings.NewReplacer("{from}", lineTables[from], "{line}", lineTables[to])
	all := []step{s.do("wait_for_line"), s.do("hold_lead", term)}
	for _, one := range steps {
		one.text = words.Replace(one.text)
		all = append(all, one)
	}
	return s.write(ctx, s.pinned(all...))
}
