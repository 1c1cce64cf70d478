package postgres

import (
	"bytes"
	"encoding/binary"
	"io"
	"slices"
	"testing"
	"testing/iotest"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// wireArray is an array of one dimension in the format of the binary protocol.
func wireArray(elements ...[]byte) []byte {
	b := make([]byte, 20)
	b[3] = 1
	binary.BigEndian.PutUint32(b[12:], uint32(len(elements)))
	b[19] = 1
	for _, e := range elements {
		b = binary.BigEndian.AppendUint32(b, uint32(len(e)))
		b = append(b, e...)
	}
	return b
}

// FuzzArray reads whole and broken arrays.
func FuzzArray(f *testing.F) {
	f.Add([]byte(nil))
	f.Add(wireArray())
	f.Add(wireArray([]byte("one"), nil, []byte("0123456789abcdef")))
	f.Add(append(wireArray([]byte("one"))[:20], 0xff, 0xff, 0xff, 0xff))
	f.Add(append(make([]byte, 12), 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 0x7f, 0xff, 0xff, 0xff, 1))
	f.Fuzz(func(t *testing.T, raw []byte) {
		texts, ids := textsOf(raw), idsOf(raw)
		if most := len(raw) / 4; len(texts) > most || len(ids) > most {
			t.Fatalf("%d texts and %d ids of %d bytes", len(texts), len(ids), len(raw))
		}
		elements := make([][]byte, len(texts))
		for i, text := range texts {
			elements[i] = []byte(text)
		}
		if again := textsOf(wireArray(elements...)); !slices.Equal(texts, again) {
			t.Fatalf("%q became %q", texts, again)
		}
	})
}

// FuzzClaimed reads rows of claims, and tasks of lists.
func FuzzClaimed(f *testing.F) {
	id, at := bytes.Repeat([]byte{7}, 16), make([]byte, 8)
	f.Add(at, wireArray(id, id), wireArray([]byte("kind"), []byte("kind")), wireArray([]byte("{}"), []byte("[]")),
		wireArray(at, at), []byte(nil))
	f.Add(at, wireArray(id), wireArray([]byte("kind")), wireArray([]byte("{}")), wireArray(at),
		wireArray([]byte(`["tag"]`)))
	f.Add(at, wireArray(id), wireArray([]byte("kind")), wireArray([]byte("1"), []byte("2")), wireArray(at), []byte(nil))
	f.Add([]byte(nil), wireArray(id), []byte(nil), wireArray([]byte("large")), []byte(nil), []byte(nil))
	f.Add([]byte{1}, wireArray([]byte{1}), []byte{1}, wireArray([]byte{1}), wireArray([]byte{1}), wireArray([]byte{}))
	f.Fuzz(func(t *testing.T, now, ids, kinds, args, enqueued, more []byte) {
		raw := [][]byte{now, now, ids, kinds, args, enqueued}
		for range 11 {
			raw = append(raw, more)
		}
		if len(now) == 0 {
			raw[1] = nil
		}
		if len(more) == 0 {
			raw[6] = nil
		}
		var c claimed
		if err := c.read(raw); err == nil && len(c.tasks) != len(c.lanes) {
			t.Fatalf("%d tasks in %d lanes", len(c.tasks), len(c.lanes))
		}
		var task store.Task
		if lane := readTask(&task, raw); task.Priority != priorityOf(lane) {
			t.Fatalf("priority %d of lane %d", task.Priority, lane)
		}
	})
}

// FuzzCopy makes tasks from a few bytes each, and reads the data of the COPY: it has all tasks, in their order, and
// no row is too large for a page.
func FuzzCopy(f *testing.F) {
	f.Add([]byte("0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"), byte(16))
	f.Add([]byte{0, 0, 0, 0, 1, 1, 2, 2, 2, 3, 4, 4, 4, 4, 0x80, 0x80, 0x81, 0xff, 0xff, 0xff, 0}, byte(2))
	f.Add(bytes.Repeat([]byte{0, 8}, 150), byte(2))
	f.Add(bytes.Repeat([]byte{3}, 300), byte(16))
	sizes := []int{0, 2, 60, 200, 450, 1500, 6900, 7000}
	f.Fuzz(func(t *testing.T, made []byte, least byte) {
		tasks := make([]store.NewTask, min(len(made), 1000))
		for i := range tasks {
			b := made[i]
			n := &tasks[i]
			n.ID[0], n.ID[14], n.ID[15] = 1, byte(i/256), byte(i)+b>>7 // some are not consecutive
			n.Queue, n.Kind, n.Args = "q", []string{"a", "b"}[b&1], bytes.Repeat([]byte{b}, sizes[b>>1&7])
			switch b >> 4 & 7 {
			case 1:
				n.Tags, n.Settings = []string{"x", "", "yz"}, bytes.Repeat([]byte("s"), 3000)
			case 2:
				n.Tenant = "acme"
			case 3:
				n.Priority, n.ExpiresAt = 1, time.UnixMicro(int64(b)).UTC()
			}
		}
		least = max(least, 2)
		copied, name := rowsOf(tasks, surveyOf(tasks), int(least))
		data, err := io.ReadAll(iotest.HalfReader(copied))
		if err != nil {
			t.Fatal(err)
		}
		rows, rest := data[19:], tasks
		field := func() []byte {
			n := int32(binary.BigEndian.Uint32(rows))
			rows = rows[4:]
			if n < 0 {
				return nil
			}
			value := rows[:n:n]
			rows = rows[n:]
			return value
		}
		for {
			columns := int16(binary.BigEndian.Uint16(rows))
			rows = rows[2:]
			if columns < 0 {
				break
			}
			var of [9][]byte
			for i := range columns {
				of[i] = field()
			}
			ids, args := [][]byte{of[1]}, [][]byte{of[3]}
			if of[8] != nil {
				if a := arrayOf(of[8]); a.n < int(least) || a.n > packMost || len(of[8]) > packRoom+100 || len(of[3]) > 0 {
					t.Fatalf("a pack of %d tasks with %d bytes, and args of %d", a.n, len(of[8]), len(of[3]))
				} else {
					id := idColumn{last: store.ID(of[1])}
					ids, args = [][]byte{of[1]}, [][]byte{a.next()}
					for range a.n - 1 {
						next := id.next()
						ids, args = append(ids, next[:]), append(args, a.next())
					}
				}
			}
			for i := range ids {
				n := &rest[0]
				rest = rest[1:]
				if !bytes.Equal(ids[i], n.ID[:]) || !bytes.Equal(args[i], n.Args) || string(of[2]) != n.Kind ||
					int64Of(of[0]) != laneOf(n.Queue, n.Priority) {
					t.Fatalf("%x of kind %s became %x of kind %s", n.ID, n.Kind, ids[i], of[2])
				}
				if i > 0 && (!bytes.Equal(ids[i][:15], ids[0][:15]) || ids[i][15] != ids[i-1][15]+1) {
					t.Fatalf("%x follows %x in a pack", ids[i], ids[i-1])
				}
				if string(of[4]) != n.Tenant || !slices.Equal(textsOf(of[5]), n.Tags) || !bytes.Equal(of[6], n.Settings) ||
					!timeOf(of[7]).Equal(n.ExpiresAt) {
					t.Fatalf("%s: %+v became %q", name, n, of[4:8])
				}
			}
		}
		if len(rest) > 0 || len(rows) > 0 {
			t.Fatalf("%d tasks and %d bytes are left", len(rest), len(rows))
		}
	})
}
