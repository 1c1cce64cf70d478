package postgres

import (
	"bytes"
	"context"
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/store"
)

const (
	copyFrom  = 64   // tasks from which COPY is quicker than an insert
	packLeast = 16   // tasks of a pack
	packMost  = 128  // of the 255 that there may be
	packRoom  = 7900 // bytes of a pack: a row that a page has room for
)

// copy stores plain tasks by COPY, in one round trip: the rows follow the
// command without waiting for its answer.
func (s *Store) copy(ctx context.Context, c *pgxpool.Conn, tasks []store.NewTask) error {
	s.trips.Add(1)
	b := buffers.Get().(*[]byte)
	var name string
	*b, name = appendCopy((*b)[:0], tasks, s.packLeast)
	if _, err := c.Conn().PgConn().CopyFrom(ctx, bytes.NewReader(*b), s.sql[name]); err != nil {
		return translate(err)
	}
	buffers.Put(b) // after a failure it may still be read from
	return nil
}

// buffers are those that COPY's data is written to.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// haveMore reports whether plain tasks say more than they have to.
func haveMore(tasks []store.NewTask) bool {
	for i := range tasks {
		t := &tasks[i]
		if t.Tenant != "" || len(t.Tags) > 0 || len(t.Settings) > 0 || !t.ExpiresAt.IsZero() {
			return true
		}
	}
	return false
}

// appendCopy appends tasks in COPY's binary format, and returns the name of the
// statement with its columns.
func appendCopy(b []byte, tasks []store.NewTask, least int) ([]byte, string) {
	name, columns := "copy", byte(4)
	switch {
	case havePack(tasks, least):
		name, columns = "copy_packs", 9
	case haveMore(tasks):
		name, columns = "copy_more", 8
	}
	var l lanes
	b = append(b, "PGCOPY\n\377\r\n\000\000\000\000\000\000\000\000\000"...)
	for len(tasks) > 0 {
		run, size := 1, 0
		if columns == 9 {
			run, size = runOf(tasks)
		}
		for run > 0 {
			n := packOf(tasks[:run], size, least)
			b = appendRow(b, &l, tasks[:n], columns)
			for i := range n {
				size -= packSize(&tasks[i])
			}
			tasks, run = tasks[n:], run-n
		}
	}
	return append(b, 0xff, 0xff), name
}

// appendRow appends a row: a task, or a pack of several.
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
	if columns > 4 {
		b = appendField(b, nullIfEmpty(t.Tenant))
		b = appendTexts(b, t.Tags)
		b = appendField(b, t.Settings)
		b = appendTime(b, t.ExpiresAt)
	}
	if columns == 9 {
		b = appendPack(b, tasks)
	}
	return b
}

// havePack reports whether some of the tasks make a pack.
func havePack(tasks []store.NewTask, least int) bool {
	for len(tasks) >= least {
		run, size := runOf(tasks)
		if packOf(tasks[:run], size, least) > 1 {
			return true
		}
		tasks = tasks[1:]
	}
	return false
}

// runOf returns how many of the first tasks differ in nothing but their args, with ids
// one after the other, and what room they take.
func runOf(tasks []store.NewTask) (n, size int) {
	first := &tasks[0]
	for n < len(tasks) && (n == 0 || first.Tenant == "" && follows(&tasks[n].ID, &tasks[n-1].ID) && alike(&tasks[n], first)) {
		size += packSize(&tasks[n])
		n++
	}
	return n, size
}

// packSize is the room that a task takes in a pack.
func packSize(t *store.NewTask) int { return len(t.Args) + 8 }

// packOf returns how many of the first tasks of a run go into one row, so that the
// rows of the run are about as full as one another: the disk's pages have no room for
// two. There are at least so many in a pack.
func packOf(run []store.NewTask, size, least int) int {
	first := &run[0]
	room := packRoom - len(first.Kind) - len(first.Settings) - textsLen(first.Tags)
	if len(run) < least || room <= 0 {
		return 1
	}
	rows := max((size+room-1)/room, (len(run)+packMost-1)/packMost)
	n, taken := 0, 0
	for n < min(len(run), packMost) && taken < (size+rows-1)/rows && taken+packSize(&run[n]) <= room {
		taken += packSize(&run[n])
		n++
	}
	if n < least {
		return 1
	}
	return n
}

// follows reports whether an id is the next after another, in the same block of 256.
func follows(id, before *store.ID) bool {
	last := len(id) - 1
	return id[last] != 0 && id[last] == before[last]+1 && bytes.Equal(id[:last], before[:last])
}

// alike reports whether plain tasks differ in their ids and args alone.
func alike(a, b *store.NewTask) bool {
	return a.Queue == b.Queue && a.Priority == b.Priority && a.Kind == b.Kind && a.Tenant == b.Tenant &&
		slices.Equal(a.Tags, b.Tags) && bytes.Equal(a.Settings, b.Settings) && a.ExpiresAt.Equal(b.ExpiresAt)
}

func textsLen(texts []string) (n int) {
	for _, text := range texts {
		n += len(text) + 4
	}
	return n
}

// appendPack appends the args of a pack; of a task by itself, null.
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

// appendArray appends what comes before the elements of an array.
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

// appendTexts appends an array of texts; null when there are none.
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
