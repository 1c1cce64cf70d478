package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/store"
)

const copyFrom = 64 // from this number of tasks on, COPY is faster than an insert

// The numbers of columns of a COPY: for tasks with the minimum of columns, for other tasks,
// for packs, and for tasks that wait for their turn.
const (
	copyLeast = 4
	copyMore  = 8
	copyPacks = 9
	copyLined = 11
)

// copy stores tasks that are plain, or that wait for their turn, by COPY. It takes one round trip, because the rows
// follow the command without waiting for its answer.
func (s *Store) copy(ctx context.Context, c *pgxpool.Conn, tasks []store.NewTask, have *survey) error {
	s.trips.Add(1)
	rows, name := rowsOf(tasks, have, s.packLeast)
	defer rows.close()
	_, err := c.Conn().PgConn().CopyFrom(ctx, rows, s.lined(name))
	if err = translate(err); err != nil && ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
		return fmt.Errorf("%w: %w", ctx.Err(), err) // the driver may report only a closed connection
	}
	return err
}

// copyRows are tasks in the binary format of COPY. The rows are encoded while they are read, so that the server
// stores the first ones while the last are still being encoded.
type copyRows struct {
	mu      sync.Mutex // a read may outlast a COPY that failed
	closed  bool
	tasks   []store.NewTask // tasks whose rows are not encoded yet
	columns byte            // of each row; 0 once everything is encoded
	least   int
	lanes   lanes
	made    []byte // bytes of rows; those from at on are not read yet
	at      int
}

// rowsOf returns the rows of tasks, and the name of the COPY statement with their columns.
func rowsOf(tasks []store.NewTask, have *survey, least int) (*copyRows, string) {
	r := &copyRows{tasks: tasks, least: least, columns: copyLeast}
	name := "copy"
	switch {
	case have.lined:
		name, r.columns = "copy_lined", copyLined
	case havePack(tasks, least):
		name, r.columns = "copy_packs", copyPacks
	case have.more:
		name, r.columns = "copy_more", copyMore
	}
	buffer := buffers.Get().(*[]byte)
	r.made = append((*buffer)[:0], "PGCOPY\n\377\r\n\000\000\000\000\000\000\000\000\000"...)
	return r, name
}

// mostKept is the size of the largest buffer that is reused.
const mostKept = 1 << 20

// buffers holds the buffers for encoding rows.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// errClosed aborts a COPY that is no longer needed. With io.EOF it would be completed.
var errClosed = errors.New("the rows are closed")

// Read implements io.Reader.
func (r *copyRows) Read(p []byte) (n int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0, errClosed
	}
	for n < len(p) {
		if r.at == len(r.made) && !r.more() {
			return n, io.EOF
		}
		k := copy(p[n:], r.made[r.at:])
		n, r.at = n+k, r.at+k
	}
	return n, nil
}

// close ends reading. After it, the rows no longer use the tasks, and the next COPY may use
// the buffer.
func (r *copyRows) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed, r.tasks = true, nil
	if cap(r.made) <= mostKept {
		buffers.Put(&r.made)
	}
}

// more encodes the rows of the next run of tasks, and after the last run the end marker. It reports false if
// everything has been encoded.
func (r *copyRows) more() bool {
	if r.at, r.made = 0, r.made[:0]; r.columns == 0 {
		return false
	}
	if len(r.tasks) == 0 {
		r.made, r.columns = append(r.made, 0xff, 0xff), 0
		return true
	}
	run, size := 1, 0
	if r.columns == copyPacks {
		run, size = runOf(r.tasks)
	}
	for run > 0 {
		n, taken := packOf(r.tasks[:run], size, r.least)
		r.made = appendRow(r.made, &r.lanes, r.tasks[:n], r.columns)
		r.tasks, run, size = r.tasks[n:], run-n, size-taken
	}
	return true
}

// appendRow appends a row: one task, or a pack of several.
func appendRow(b []byte, l *lanes, tasks []store.NewTask, columns byte) []byte {
	t := &tasks[0]
	b = append(b, 0, columns)
	b = appendInt64(b, l.of(t.Queue, t.Priority))
	b = append(append(b, 0, 0, 0, byte(len(t.ID))), t.ID[:]...)
	b = append(appendLen(b, len(t.Kind)), t.Kind...)
	if len(tasks) == 1 {
		b = append(appendLen(b, len(t.Args)), t.Args...)
	} else {
		b = appendLen(b, 0)
	}
	if columns >= copyMore {
		b = appendField(b, nullIfEmpty(t.Tenant))
		b = appendTexts(b, t.Tags)
		b = appendField(b, t.Settings)
		b = appendTime(b, t.ExpiresAt)
	}
	switch columns {
	case copyPacks:
		b = appendPack(b, tasks)
	case copyLined:
		b = appendField(b, nullIfEmpty(t.Partition))
		b = append(b, 0, 0, 0, 2, 0, byte(store.Pending)) // state
		b = append(b, 0, 0, 0, 1, 1)                      // turn
	}
	return b
}

// appendPack appends the args of a pack, or null for a single task.
func appendPack(b []byte, tasks []store.NewTask) []byte {
	if len(tasks) == 1 {
		return appendField(b, nil)
	}
	size := 20
	for i := range tasks {
		size += 4 + len(tasks[i].Args)
	}
	b = appendArray(appendLen(b, size), pgtype.ByteaOID, len(tasks))
	for i := range tasks {
		b = append(appendLen(b, len(tasks[i].Args)), tasks[i].Args...)
	}
	return b
}

// appendArray appends the header of an array with n elements.
func appendArray(b []byte, oid uint32, n int) []byte {
	b = binary.BigEndian.AppendUint32(b, 1)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint32(b, oid)
	b = binary.BigEndian.AppendUint32(b, uint32(n))
	return binary.BigEndian.AppendUint32(b, 1)
}

func appendLen(b []byte, n int) []byte { return binary.BigEndian.AppendUint32(b, uint32(n)) }

func appendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return appendField(b, nil)
	}
	return appendInt64(b, micros(t))
}

func nullIfEmpty(text string) []byte {
	if text == "" {
		return nil
	}
	return []byte(text)
}

// appendField appends a value with its length; nil is null.
func appendField(b, value []byte) []byte {
	if value == nil {
		return appendLen(b, -1)
	}
	return append(appendLen(b, len(value)), value...)
}

func appendInt64(b []byte, value int64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(b, 8), uint64(value))
}

// appendTexts appends an array of texts, or null if there are none.
func appendTexts(b []byte, texts []string) []byte {
	if len(texts) == 0 {
		return appendField(b, nil)
	}
	array := appendArray(nil, pgtype.TextOID, len(texts))
	for _, text := range texts {
		array = appendField(array, []byte(text))
	}
	return appendField(b, array)
}
