package archive

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
)

// span is a range of seconds in which ids were made. An id begins with its time.
type span struct{ from, until int64 }

// spans are the seconds in which the ids of a file were made. If one task was enqueued weeks before
// the others, the smallest and the largest id say little. Spans still tell most files apart.
type spans []span

// mostSpans is the most spans of a file. If there are more, the closest ones are joined.
const mostSpans = 32

// secondOf returns the second in which an id was made. The first 48 bits of an id are milliseconds
// since 1970.
func secondOf(id string) int64 {
	if len(id) < 13 {
		return 0
	}
	ms, err := strconv.ParseInt(id[:8]+id[9:13], 16, 64)
	if err != nil {
		return 0
	}
	return ms / 1000
}

// find returns the first span that ends at a second or later, and whether it contains the second.
func (s spans) find(second int64) (at int, holds bool) {
	at, _ = slices.BinarySearchFunc(s, second, func(x span, second int64) int {
		if x.until < second {
			return -1
		}
		return 1
	})
	return at, at < len(s) && s[at].from <= second
}

// add adds a second to spans.
func (s spans) add(second int64) spans {
	at, holds := s.find(second)
	if holds {
		return s
	}
	if at > 0 && s[at-1].until == second-1 {
		s[at-1].until = second
		return s
	}
	if s = slices.Insert(s, at, span{second, second}); len(s) <= mostSpans {
		return s
	}
	closest := 1
	for i := 2; i < len(s); i++ {
		if s[i].from-s[i-1].until < s[closest].from-s[closest-1].until {
			closest = i
		}
	}
	s[closest-1].until = s[closest].until
	return slices.Delete(s, closest, closest+1)
}

// MarshalJSON implements json.Marshaler. The result has pairs of numbers, each relative to the one
// before.
func (s spans) MarshalJSON() ([]byte, error) {
	flat, last := make([]int64, 0, 2*len(s)), int64(0)
	for _, x := range s {
		flat = append(flat, x.from-last, x.until-x.from)
		last = x.until
	}
	return json.Marshal(flat)
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *spans) UnmarshalJSON(text []byte) error {
	var flat []int64
	if err := json.Unmarshal(text, &flat); err != nil {
		return err
	}
	if len(flat)%2 != 0 {
		return fmt.Errorf("spans: %d numbers, want pairs", len(flat))
	}
	*s = make(spans, 0, len(flat)/2)
	last := int64(0)
	for i := 0; i < len(flat); i += 2 {
		from := last + flat[i]
		last = from + flat[i+1]
		*s = append(*s, span{from, last})
	}
	return nil
}
