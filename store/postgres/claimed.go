package postgres

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tuskqueue/tusk/store"
)

// claimed reads what the function claim returns: tasks in columns.
type claimed struct {
	tasks []store.Task
	lanes []int64 // the lane of each task
	full  bool    // some tasks have more than the minimum of columns
	packs int32   // number of pieces of packs that were read
	about int     // expected number of tasks
	busy  int64   // a lane that was passed over because somebody claimed from it; 0 if none was

	kind string // the last one, because most lists have few kinds
	room []byte // a buffer for the args of several tasks
}

// read adds one row.
func (c *claimed) read(raw [][]byte) error {
	lane, ids, args := int64Of(raw[0]), idsIn(raw[2]), arrayOf(raw[4])
	n, piece := ids.each.n, int32(0)
	if n == 1 && args.n > 1 {
		c.packs++
		n, piece = args.n, c.packs
	}
	if raw[2] == nil {
		c.busy = lane
		return nil
	}
	if raw[1] == nil {
		return c.readLarge(ids.next(), args.next())
	}
	at, now, kinds, enqueued := len(c.tasks), timeOf(raw[1]), columnOf(raw[3]), columnOf(raw[5])
	if at == 0 {
		c.tasks, c.lanes = make([]store.Task, 0, max(n, c.about)), make([]int64, 0, max(n, c.about))
	}
	c.tasks = slices.Grow(c.tasks, n)[:at+n]
	for i := at; i < len(c.tasks); i++ {
		t := &c.tasks[i]
		c.lanes = append(c.lanes, lane)
		t.ID, t.Piece = ids.next(), piece
		if kind := kinds.next(); string(kind) != c.kind {
			c.kind = string(kind)
		}
		t.Kind = c.kind
		t.Args = c.keep(args.next())
		t.EnqueuedAt = timeOf(enqueued.next())
		t.RunAt, t.ClaimedAt, t.Attempt = t.EnqueuedAt, now, 1
	}
	if raw[6] == nil {
		return nil
	}
	return c.readMore(c.tasks[at:], raw[6:])
}

// readMore reads the columns that most tasks leave empty.
func (c *claimed) readMore(tasks []store.Task, raw [][]byte) error {
	var columns [11]column
	for i := range columns {
		columns[i] = columnOf(raw[i])
	}
	for i := range tasks {
		t := &tasks[i]
		t.Attempt, t.Crashes = int(int32Of(columns[0].next())), int(int32Of(columns[1].next()))
		if at := columns[2].next(); at != nil {
			t.RunAt = timeOf(at)
		}
		t.ExpiresAt = timeOf(columns[3].next())
		t.Tenant, t.Key = string(columns[4].next()), string(columns[5].next())
		if tags := columns[6].next(); tags != nil {
			if err := json.Unmarshal(tags, &t.Tags); err != nil {
				t.Damage = "its tags cannot be read: " + err.Error()
			}
		}
		t.Settings = bytesOf(columns[7].next())
		t.Workflow = idOf(columns[8].next())
		turn := columns[9].next()
		t.Turn = len(turn) > 0 && turn[0] != 0
		t.Partition = string(columns[10].next())
		c.full = c.full || t.Attempt > 1 || t.Crashes > 0 || !t.RunAt.Equal(t.EnqueuedAt) || !t.ExpiresAt.IsZero() ||
			t.Tenant != "" || t.Key != "" ||
			t.Tags != nil || t.Settings != nil || !t.Workflow.IsZero() || t.Turn || t.Partition != ""
	}
	return nil
}

// readLarge reads args that are too large for an array. They come after their task.
func (c *claimed) readLarge(id store.ID, args []byte) error {
	for i := len(c.tasks) - 1; i >= 0; i-- {
		if t := &c.tasks[i]; t.ID == id {
			t.Args = bytesOf(args)
			return nil
		}
	}
	return fmt.Errorf("args of a task that was not claimed: %x", id)
}

// keep copies bytes, because raw is only valid until the next row.
func (c *claimed) keep(raw []byte) []byte {
	const piece = 16 << 10
	if len(raw) > piece/8 {
		return bytesOf(raw)
	}
	if len(raw) >= cap(c.room)-len(c.room) {
		c.room = make([]byte, 0, piece)
	}
	at := len(c.room)
	c.room = append(c.room, raw...)
	return c.room[at:len(c.room):len(c.room)]
}

// column reads a column of tasks. It has one value for each task, or a single one for all.
type column struct {
	each array
	all  []byte
	same bool
}

func columnOf(raw []byte) column {
	c := column{each: arrayOf(raw)}
	if c.same = c.each.n == 1; c.same {
		c.all = c.each.next()
	}
	return c
}

// next returns the next task's value; nil is null.
func (c *column) next() []byte {
	if c.same {
		return c.all
	}
	return c.each.next()
}

// idColumn reads ids. Where an id is missing, it is the previous one plus one.
type idColumn struct {
	each array
	last store.ID
}

func idsIn(raw []byte) idColumn { return idColumn{each: arrayOf(raw)} }

// next returns the next task's id.
func (c *idColumn) next() store.ID {
	if id := c.each.next(); id != nil {
		c.last = idOf(id)
	} else {
		c.last[len(c.last)-1]++
	}
	return c.last
}

// array reads an array, one element after the other.
type array struct {
	n    int
	rest []byte
}

func arrayOf(raw []byte) array {
	if len(raw) < 20 {
		return array{}
	}
	dimensions := int(binary.BigEndian.Uint32(raw))
	if dimensions > 6 || len(raw) < 12+8*dimensions {
		return array{}
	}
	rest := raw[12+8*dimensions:]
	return array{min(int(binary.BigEndian.Uint32(raw[12:])), len(rest)/4), rest} // each element has a length of 4 bytes
}

// next returns the next element. It returns nil for null and at the end.
func (a *array) next() []byte {
	if len(a.rest) < 4 {
		return nil
	}
	n := int32Of(a.rest)
	a.rest = a.rest[4:]
	if n < 0 || int(n) > len(a.rest) {
		return nil
	}
	element := a.rest[:n:n]
	a.rest = a.rest[n:]
	return element
}
