package postgres

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	askLine  = 5 * time.Second  // how often a process asks in which table tasks get in line
	restLine = 10 * time.Second // how long a table has no task before it is truncated
	fullLine = 1 << 20          // bytes of a table after which the other one is used
	moveLine = 2000             // tasks that move at a time
	mostLeft = 5 * moveLine     // a table with more tasks than this is left as it is
)

// lineTables are the tables in which tasks get in line, by the number that line_table returns.
var lineTables = []string{"waiting", "line_1", "line_2"}

// lines is what the engine knows about these tables. The number may be out of date: a task may be in any of them.
type lines struct {
	no    atomic.Int32
	asked atomic.Int64  // when it last asked for the number, in nanoseconds
	empty atomic.Int64  // since when the leader has found the table that is not in use to be empty; 0 if it is not
	rest  time.Duration // how long that must be so before the table is truncated
	looks atomic.Int64  // how often the leader has found a table that is to be truncated
}

// onEachLine returns the rows of a query on each of the tables.
func onEachLine(text string) string {
	parts := make([]string, len(lineTables))
	for i, table := range lineTables {
		parts[i] = "  (" + strings.ReplaceAll(text, "{line}", table) + ")"
	}
	return strings.Join(parts, "\n  union all\n")
}

// lined returns a statement by which tasks get in line.
func (s *Store) lined(name string) string {
	return strings.Replace(s.sql[name], "{line}", lineTables[s.lines.no.Load()], 1)
}

// asksLine reports whether it is time to ask for the table again, and that the caller is the one to ask.
func (s *Store) asksLine() bool {
	asked, now := s.lines.asked.Load(), time.Now().UnixNano()
	return now-asked >= int64(askLine) && s.lines.asked.CompareAndSwap(asked, now)
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
	var no int32
	err := c.each(ctx, func(scan func(...any) error) error { return scan(&no) }, s.sql["line_table"])
	if err == nil && int(no) < len(lineTables) {
		s.lines.no.Store(no)
	}
}

// emptyLines keeps the dead rows of lines from piling up: it truncates the table that is not in use once it has had no
// task for a while, and then lets tasks get in line there. It waits because a statement that began before the last task
// was granted might look for that task afterwards, and would find it in neither place.
func (s *Store) emptyLines(ctx context.Context, term int64) error {
	var size [3]int64
	err := s.read(ctx, s.pinned(
		s.do("leads_still", term),
		s.do("line_table").into(func(raw [][]byte) error {
			s.lines.no.Store(int32Of(raw[0]))
			return nil
		}),
		s.do("line_sizes").into(func(raw [][]byte) error {
			size[1], size[2] = int64Of(raw[0]), int64Of(raw[1])
			return nil
		})))
	no := int(s.lines.no.Load())
	if err != nil || no == 0 {
		return err
	}
	other, full := 3-no, size[no] >= fullLine
	if full || size[other] > 0 {
		s.lines.looks.Add(1)
	}
	if size[other] == 0 {
		s.lines.empty.Store(0)
		if full {
			err = s.exec(ctx, "next_line_table")
		}
		return err
	}
	var left int
	text := strings.Replace(s.sql["left_in_line"], "{from}", lineTables[other], 1)
	if err := s.queryText(ctx, text, func(raw [][]byte) error {
		left = int(int64Of(raw[0]))
		return nil
	}, mostLeft+1); err != nil {
		return err
	}
	if left > 0 {
		s.lines.empty.Store(0)
		if full && left <= mostLeft {
			err = unlessBusy(s.moveLine(ctx, term, other, no, left))
		}
		return err
	}
	s.lines.empty.CompareAndSwap(0, time.Now().UnixNano())
	if time.Since(time.Unix(0, s.lines.empty.Load())) >= s.lines.rest {
		err = unlessBusy(s.exec(ctx, "empty_line", term, other))
	}
	return err
}

// moveLine moves the last tasks of a table to the one in use. Their places in line stay.
func (s *Store) moveLine(ctx context.Context, term int64, from, to, tasks int) error {
	words := strings.NewReplacer("{from}", lineTables[from], "{line}", lineTables[to])
	for ; tasks > 0; tasks -= moveLine {
		err := s.write(ctx, []step{s.do("wait_briefly"), s.do("hold_lead", term),
			{text: words.Replace(s.sql["lock_line"])},
			{text: words.Replace(s.sql["move_line"]), args: []any{moveLine}}})
		if err != nil {
			return err
		}
	}
	return nil
}
