package mysql

import (
	"database/sql"
	"encoding/binary"
	"slices"
)

// A row of tusk_held names tasks that were given their turn, each by its place, queue, tenant and partition, or spans
// of tasks that gave it back. No transaction updates what others update: a grant and a finish each add one row, for any
// number of tasks, and the leader sums up the rows.

// maxHeld is how many tasks, or spans of them, a row of tusk_held names at most. Hundreds of thousands of turns may be
// held at once, and would not fit into a packet.
const maxHeld = 500

// encodeGiven encodes tasks one after the other. The length of each name precedes it.
func encodeGiven(rows []*row) (b []byte) {
	for _, r := range rows {
		b = binary.BigEndian.AppendUint64(b, uint64(r.place))
		b = binary.BigEndian.AppendUint16(b, uint16(r.n))
		for _, name := range []string{r.Queue, r.Tenant, r.Partition} {
			b = append(append(b, byte(len(name))), name...)
		}
	}
	return b
}

// decodeGiven is the inverse of encodeGiven. If the list is damaged, it returns what can be read.
func decodeGiven(b []byte) (rows []*row, err error) {
	for len(b) >= 10 {
		r := &row{ref: ref{int64(binary.BigEndian.Uint64(b)), int16(binary.BigEndian.Uint16(b[8:])), 0}}
		b = b[10:]
		for _, name := range []*string{&r.Queue, &r.Tenant, &r.Partition} {
			if len(b) == 0 || len(b) <= int(b[0]) {
				return rows, errSpans
			}
			*name, b = string(b[1:1+int(b[0])]), b[1+int(b[0]):]
		}
		rows = append(rows, r)
	}
	if len(b) > 0 {
		err = errSpans
	}
	return rows, err
}

// holders counts the tasks with a turn, by line. If the leader asks, and most of what was read is over, holders
// replaces the rows. New rows list the tasks that still have their turn, and tasks that gave back a turn which was not
// visible yet: a look may miss what was committed before other things that it sees.
func (w *work) holders(sumUp bool) (held map[line]int64, err error) {
	var seqs []any
	read, turns, given := 0, map[ref]int{}, map[ref]*row{}
	err = w.ask(func(rows *sql.Rows) error {
		var seq int64
		var back bool
		var refs []byte
		if err := rows.Scan(&seq, &back, &refs); err != nil {
			return err
		}
		seqs = append(seqs, seq)
		if back {
			for _, r := range refsOf(w.store.spansIn(refs, "tusk_held")) {
				turns[r.anyLap()]--
				read++
			}
			return nil
		}
		tasks, err := decodeGiven(refs)
		w.store.damage("tusk_held", err)
		for _, r := range tasks {
			turns[r.ref]++
			given[r.ref] = r
			read++
		}
		return nil
	}, q("held.read"))
	if err != nil {
		return nil, err
	}
	held = map[line]int64{}
	var left []*row
	for at, r := range given {
		if turns[at] > 0 {
			held[line{r.Queue, r.Tenant, r.Partition}]++
			left = append(left, r)
		}
	}
	var early []ref
	for at, n := range turns {
		for ; n < 0; n++ {
			early = append(early, at)
		}
	}
	if sumUp && read > 2*(len(left)+len(early)) {
		w.given, w.back = append(w.given, left...), append(w.back, early...)
		for part := range slices.Chunk(seqs, 1000) {
			w.do(list("held.drop", "?", len(part)), part...)
		}
	}
	return held, nil
}
