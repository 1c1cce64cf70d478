package mysql

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
)

// ref says where a task is, and which of its laps is meant.
type ref struct {
	place int64
	n     int16
	lap   int32
}

// anyLap says where a task is, whatever its lap.
func (r ref) anyLap() ref {
	r.lap = 0
	return r
}

func byPlace(a, b ref) int { return cmp.Or(cmp.Compare(a.place, b.place), cmp.Compare(a.n, b.n)) }

// span is a run of tasks of one place in the same lap.
type span struct {
	place       int64
	first, last int16
	lap         int32
}

func (s span) has(r ref) bool {
	return s.place == r.place && s.first <= r.n && r.n <= s.last && s.lap == r.lap
}

const spanBytes = 16

// encodeSpans encodes spans one after the other: place, lap, first, last.
func encodeSpans(spans []span) []byte {
	b := make([]byte, 0, spanBytes*len(spans))
	for _, s := range spans {
		b = binary.BigEndian.AppendUint64(b, uint64(s.place))
		b = binary.BigEndian.AppendUint32(b, uint32(s.lap))
		b = binary.BigEndian.AppendUint16(b, uint16(s.first))
		b = binary.BigEndian.AppendUint16(b, uint16(s.last))
	}
	return b
}

var errSpans = errors.New("a list of tasks in the database is damaged")

// decodeSpans is the inverse of encodeSpans. If the list is damaged, it returns what can be read.
func decodeSpans(b []byte) (spans []span, err error) {
	if len(b)%spanBytes != 0 {
		err = errSpans
	}
	spans = make([]span, 0, len(b)/spanBytes)
	for ; len(b) >= spanBytes; b = b[spanBytes:] {
		spans = append(spans, span{
			place: int64(binary.BigEndian.Uint64(b)), lap: int32(binary.BigEndian.Uint32(b[8:])),
			first: int16(binary.BigEndian.Uint16(b[12:])), last: int16(binary.BigEndian.Uint16(b[14:])),
		})
	}
	return spans, err
}

// spansIn returns what can be read of a list, and logs where a damaged list is.
func (s *Store) spansIn(b []byte, where string) []span {
	spans, err := decodeSpans(b)
	s.damage(where, err)
	return spans
}

// damage logs, once for each list, that the list could not be read completely.
func (s *Store) damage(where string, err error) {
	if err == nil {
		return
	}
	if _, said := s.damaged.LoadOrStore(where, true); !said {
		s.log.Error("mysql: the tasks that cannot be read there are passed over", "where", where, "error", err)
	}
}

// refsOf splits spans into single tasks.
func refsOf(spans []span) (refs []ref) {
	for _, s := range spans {
		for n := int(s.first); n <= int(s.last); n++ { // an int16 would never get past the last one
			refs = append(refs, ref{s.place, int16(n), s.lap})
		}
	}
	return refs
}

// spansOf joins adjacent tasks.
func spansOf(refs []ref) (spans []span) {
	refs = slices.Clone(refs)
	slices.SortFunc(refs, byPlace)
	for _, r := range refs {
		if n := len(spans); n > 0 && spans[n-1].place == r.place && spans[n-1].last+1 == r.n && spans[n-1].lap == r.lap {
			spans[n-1].last = r.n
			continue
		}
		spans = append(spans, span{r.place, r.n, r.n, r.lap})
	}
	return spans
}

// apart returns a span for each task. A statement that locks the rows of a span with several tasks also locks the
// next row, which may belong to another transaction.
func apart(refs []ref) []span {
	spans := make([]span, len(refs))
	for i, r := range refs {
		spans[i] = span{r.place, r.n, r.n, r.lap}
	}
	return spans
}

// where returns a condition, in parentheses, that finds the tasks of spans by the primary key, and its arguments. The
// condition does not compare places with =: for several tasks of one place, the server would then read, and lock, the
// whole place.
func where(spans []span) (string, []any) {
	var b strings.Builder
	args := make([]any, 0, 4*len(spans))
	for i, s := range spans {
		if i > 0 {
			b.WriteString(" or ")
		}
		if s.first == s.last {
			b.WriteString("place >= ? and place <= ? and n = ?")
			args = append(args, s.place, s.place, s.first)
		} else {
			b.WriteString("place >= ? and place <= ? and n between ? and ?")
			args = append(args, s.place, s.place, s.first, s.last)
		}
	}
	return "(" + b.String() + ")", args
}

// among replaces :tasks in a statement by a condition on tasks. before has the arguments that come before those of the
// condition.
func among(name string, spans []span, before ...any) (string, []any) {
	condition, args := where(spans)
	return strings.Replace(q(name), ":tasks", condition, 1), append(before, args...)
}

// maxSpans is how many spans one condition may have.
const maxSpans = 500

// inParts calls fn for parts of the items with up to size items each.
func inParts[T any](items []T, size int, fn func(part []T) error) error {
	for part := range slices.Chunk(items, size) {
		if err := fn(part); err != nil {
			return err
		}
	}
	return nil
}
