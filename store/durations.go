package store

import (
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
	"time"
)

// Durations summarizes many durations: their count, their sum, and a histogram from which quantiles are read with an
// error of at most a fifth. Two of them can be merged.
type Durations struct {
	Count   int64
	Sum     time.Duration // stops at 292 years, which 107,000 tasks reach if each waits for a day
	Max     time.Duration
	Buckets [DurationBuckets]int64
}

// DurationBuckets is the number of buckets of a histogram: four for each power of two of microseconds. The last one
// is open-ended (from about 13 days).
const DurationBuckets = 164

// Add counts one duration; a negative one counts as zero.
func (d *Durations) Add(x time.Duration) {
	x = max(x, 0)
	d.Count++
	d.Sum = plus(d.Sum, x)
	d.Max = max(d.Max, x)
	d.Buckets[bucketOf(x)]++
}

// Merge counts everything that o counted.
func (d *Durations) Merge(o *Durations) {
	d.Count += o.Count
	d.Sum = plus(d.Sum, o.Sum)
	d.Max = max(d.Max, o.Max)
	for i, n := range o.Buckets {
		d.Buckets[i] += n
	}
}

// plus adds a and b, and stops at the largest duration.
func plus(a, b time.Duration) time.Duration {
	if b > math.MaxInt64-a {
		return math.MaxInt64
	}
	return a + b
}

// Mean returns the average, or zero if nothing was counted. If the sum has overflowed, it computes the average from
// the histogram.
func (d *Durations) Mean() time.Duration {
	if d.Count == 0 {
		return 0
	}
	if d.Sum < math.MaxInt64 {
		return d.Sum / time.Duration(d.Count)
	}
	var sum float64
	for i, n := range d.Buckets {
		sum += float64(n) * float64(min(bucketEdge(i), d.Max))
	}
	return time.Duration(sum / float64(d.Count))
}

// Quantile returns the q-quantile, rounded up to the edge of its bucket: the share q of all durations does not exceed
// it. It returns zero if nothing was counted.
func (d *Durations) Quantile(q float64) time.Duration {
	if d.Count == 0 {
		return 0
	}
	want := int64(math.Ceil(q * float64(d.Count)))
	var seen int64
	for i, n := range d.Buckets {
		if seen += n; n > 0 && seen >= want {
			return min(bucketEdge(i), d.Max)
		}
	}
	return d.Max
}

// bucketOf returns the bucket of a duration. 0 to 3 microseconds have a bucket each; from there on every power of two
// has four.
func bucketOf(x time.Duration) int {
	us := uint64(x / time.Microsecond)
	if us < 4 {
		return int(us)
	}
	power := bits.Len64(us) - 1
	quarter := int(us>>(power-2)) & 3
	return min(4*(power-1)+quarter, DurationBuckets-1)
}

func bucketEdge(i int) time.Duration {
	if i == DurationBuckets-1 {
		return math.MaxInt64
	}
	next := i + 1
	if next < 4 {
		return time.Duration(next) * time.Microsecond
	}
	power, quarter := next/4+1, next%4
	return time.Duration(uint64(4+quarter)<<(power-2)) * time.Microsecond
}

// Encode writes the count, the sum, the maximum, and the nonempty buckets of the histogram, each as its distance from
// the previous one and its count. Engines without arrays store durations this way.
func (d *Durations) Encode() []byte {
	b := make([]byte, 0, 64)
	b = binary.AppendVarint(b, d.Count)
	b = binary.AppendVarint(b, int64(d.Sum))
	b = binary.AppendVarint(b, int64(d.Max))
	last := 0
	for i, n := range d.Buckets {
		if n != 0 {
			b = binary.AppendVarint(binary.AppendVarint(b, int64(i-last)), n)
			last = i
		}
	}
	return b
}

var errDurations = errors.New("durations in the database are damaged")

// Decode reads what Encode wrote.
func (d *Durations) Decode(b []byte) error {
	damaged := false
	next := func() int64 {
		v, n := binary.Varint(b)
		if n <= 0 {
			damaged, b = true, nil
			return 0
		}
		b = b[n:]
		return v
	}
	d.Count, d.Sum, d.Max = next(), time.Duration(next()), time.Duration(next())
	for i := int64(0); len(b) > 0; {
		if i += next(); i < 0 || i >= DurationBuckets {
			return errDurations
		}
		d.Buckets[i] = next()
	}
	if damaged {
		return errDurations
	}
	return nil
}

// Below returns how many durations were shorter than an edge. The result is exact if edge is the edge of a bucket, as
// each power of two of microseconds is.
func (d *Durations) Below(edge time.Duration) (n int64) {
	for i, count := range d.Buckets {
		if bucketEdge(i) > edge {
			break
		}
		n += count
	}
	return n
}
