package mysql

import (
	"database/sql"
	"encoding/binary"
)

// A row of tusk_held names tasks that were given their turn, each by its place, and by its queue, tenant and
// partition, or spans of tasks that gave it back. Nobody updates what others update: a grant and a finish add a row
// each, whatever the number of tasks, and the leader sums them up.

// encodeGiven writes tasks one after the other, names with their lengths before them.
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

// decodeGiven is the opposite. Of a list that is damaged it returns what can be read.
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

// holders counts who has a turn, by line. Where the leader asks, and most of what was read is over, it leaves a row
// of those who still have theirs, and one of those who gave theirs back though it is not seen yet that they had one:
// what a look sees may lack what was committed before the rest.
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
				turns[ref{r.place, r.n, 0}]--
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
		inParts(seqs, 1000, func(part []any) error {
			w.do(list("held.drop", "?", len(part)), part...)
			return nil
		})
	}
	return held, nil
}
