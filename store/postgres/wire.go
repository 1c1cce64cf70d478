package postgres

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tuskqueue/tusk/store"
)

// Values are in the format of the binary protocol. They are decoded by hand because
// a client that claims thousands of tasks spends most of its time here.

const epoch = 946684800 // PostgreSQL counts from 2000-01-01

// Infinite times, and times outside the years 1 to 9999, are replaced by the nearest of
// these two.
var (
	firstMicros = micros(time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC))
	lastMicros  = micros(time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC))
)

func timeOf(raw []byte) time.Time {
	if len(raw) < 8 {
		return time.Time{}
	}
	us := max(firstMicros, min(int64(binary.BigEndian.Uint64(raw)), lastMicros))
	return time.Unix(epoch+floorDiv(us, 1e6), (us-floorDiv(us, 1e6)*1e6)*1000).UTC()
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

func micros(t time.Time) int64 {
	return (t.Unix()-epoch)*1e6 + int64(t.Nanosecond()/1000)
}

func int64Of(raw []byte) int64 {
	if len(raw) < 8 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(raw))
}

// int64sOf reads an array. It returns nil for null.
func int64sOf(raw []byte) []int64 {
	if raw == nil {
		return nil
	}
	all := []int64{}
	for list := arrayOf(raw); list.n > 0; list.n-- {
		all = append(all, int64Of(list.next()))
	}
	return all
}

func int32Of(raw []byte) int32 {
	if len(raw) < 4 {
		return 0
	}
	return int32(binary.BigEndian.Uint32(raw))
}

func stateOf(raw []byte) store.State {
	if len(raw) < 2 {
		return 0
	}
	return store.State(binary.BigEndian.Uint16(raw))
}

func idOf(raw []byte) (id [16]byte) {
	copy(id[:], raw)
	return id
}

func bytesOf(raw []byte) []byte {
	if raw == nil {
		return nil
	}
	return append([]byte{}, raw...)
}

// textsOf reads an array without nulls. If the array has several dimensions, it returns only
// the first elements.
func textsOf(raw []byte) []string {
	if len(raw) < 20 {
		return nil
	}
	a := arrayOf(raw)
	texts := make([]string, a.n)
	for i := range texts {
		texts[i] = string(a.next())
	}
	return texts
}

// idsOf reads an array of ids. It returns nil for an empty one.
func idsOf(raw []byte) []store.ID {
	if len(raw) < 20 {
		return nil
	}
	a := arrayOf(raw)
	ids := make([]store.ID, a.n)
	for i := range ids {
		ids[i] = idOf(a.next())
	}
	return ids
}

// readTask reads the columns that every answer with tasks begins with: lane,
// id, kind, args, enqueued_at, attempt, crashes, run_at, expires_at,
// claimed_at, tenant, key, tags, settings, workflow, turn, partition.
func readTask(t *store.Task, raw [][]byte) (lane int64) {
	lane = int64Of(raw[0])
	t.Priority = priorityOf(lane)
	t.ID = idOf(raw[1])
	t.Kind = string(raw[2])
	t.Args = bytesOf(raw[3])
	t.EnqueuedAt = timeOf(raw[4])
	t.Attempt = int(int32Of(raw[5]))
	t.Crashes = int(int32Of(raw[6]))
	t.RunAt = t.EnqueuedAt
	if raw[7] != nil {
		t.RunAt = timeOf(raw[7])
	}
	t.ExpiresAt = timeOf(raw[8])
	t.ClaimedAt = timeOf(raw[9])
	t.Tenant = string(raw[10])
	t.Key = string(raw[11])
	if t.Tags = textsOf(raw[12]); t.Tags != nil && int32Of(raw[12]) != 1 {
		t.Damage = "its tags are no plain array"
	}
	t.Settings = bytesOf(raw[13])
	t.Workflow = idOf(raw[14])
	t.Turn = len(raw[15]) > 0 && raw[15][0] != 0
	t.Partition = string(raw[16])
	return lane
}

// laneOf returns the lane of a queue and a priority: the hash of the queue's name
// in 47 bits and the priority in 16. So the lanes of a queue are a range in order
// of priority. The function lane_of in the database computes the same.
func laneOf(queue string, priority int16) int64 {
	var l lanes
	return l.of(queue, priority)
}

// lanes computes lanes, and remembers the hash of the last queue, because most lists name
// the same queue again and again.
type lanes struct {
	queue string
	hash  int64
}

func (l *lanes) of(queue string, priority int16) int64 {
	if queue != l.queue || l.hash == 0 {
		l.queue, l.hash = queue, hashOf(queue)
	}
	return l.hash<<16 + int64(priority) - math.MinInt16
}

func hashOf(queue string) int64 {
	sum := sha256.Sum256([]byte(queue))
	return int64(binary.BigEndian.Uint64(sum[:8])>>16) & (1<<47 - 1)
}

func priorityOf(lane int64) int16 { return int16(lane&0xffff + math.MinInt16) }

// uuids is an array parameter.
type uuids = pgtype.FlatArray[[16]byte]

func uuidsOf[T ~[16]byte](ids []T) uuids {
	array := make(uuids, len(ids))
	for i, id := range ids {
		array[i] = id
	}
	return array
}

// orNull returns a pointer to a value, or nil if the value is zero.
func orNull[T comparable](v T) *T {
	var none T
	if v == none {
		return nil
	}
	return &v
}

func timeOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// arrayText writes texts in PostgreSQL's text format of an array, so that a list
// of lists of different lengths can be sent. It returns nil for an empty list.
func arrayText(texts []string) *string {
	if len(texts) == 0 {
		return nil
	}
	b := []byte{'{'}
	for i, text := range texts {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '"')
		for _, c := range []byte(text) {
			if c == '"' || c == '\\' {
				b = append(b, '\\')
			}
			b = append(b, c)
		}
		b = append(b, '"')
	}
	array := string(append(b, '}'))
	return &array
}
