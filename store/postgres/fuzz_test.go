package postgres

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/tuskqueue/tusk/store"
)

// wireArray is an array of one dimension as the binary protocol has it.
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

// FuzzArray reads arrays, whole and broken ones.
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
	f.Add(at, wireArray(id, id), wireArray([]byte("kind"), []byte("kind")), wireArray([]byte("{}"), []byte("[]")), wireArray(at, at), []byte(nil))
	f.Add(at, wireArray(id), wireArray([]byte("kind")), wireArray([]byte("{}")), wireArray(at), wireArray([]byte(`["tag"]`)))
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
