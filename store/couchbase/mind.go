package couchbase

import (
	"sync"
	"time"

	"github.com/couchbase/gocb/v2"
)

// mark is a lane's cursor as it was read or written.
type mark struct {
	cursor
	cas gocb.Cas
}

// minds are what this handle remembers of lanes: which page was last appended to, and the cursor. Where it alone claims
// from a lane, it need not read the cursor again. Where others claim too, moves clash, and for a while claimers lock
// the cursor instead.
type minds struct {
	mu sync.Mutex
	of map[lane]mind
}

type mind struct {
	mark
	at      time.Time // when it was written; zero: it is not known
	clashed time.Time
	pause   time.Duration // before a cursor that is locked is asked for again
	tail    int           // the page that was last appended to; 0: it is not known
}

// mindFor is how long a cursor is remembered, and for how long claimers lock it after a clash.
const mindFor = time.Second

// Between these the pause tunes itself.
const (
	leastPause = 200 * time.Microsecond
	mostPause  = 40 * time.Millisecond
)

// locked takes note of how a cursor was locked. Where it took more than one try, others claim here too.
func (m *minds) locked(l lane, tries int, pause time.Duration) {
	m.change(l, func(is *mind) {
		if is.pause = pause; tries == 1 {
			is.pause = max(pause/2, leastPause)
		} else {
			is.clashed = time.Now()
		}
	})
}

// pause returns how long to wait first for a cursor that is locked.
func (m *minds) pause(l lane) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return max(m.of[l].pause, leastPause)
}

// get returns the cursor of a lane, if it is remembered.
func (m *minds) get(l lane) (*mark, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	is := m.of[l]
	return &mark{is.cursor, is.cas}, time.Since(is.at) < mindFor && time.Since(is.clashed) > mindFor
}

func (m *minds) set(l lane, to *mark) {
	m.change(l, func(is *mind) { is.mark, is.at = *to, time.Now() })
}

func (m *minds) forget(l lane) {
	m.change(l, func(is *mind) { is.at = time.Time{} })
}

func (m *minds) clash(l lane) {
	m.change(l, func(is *mind) { is.at, is.clashed = time.Time{}, time.Now() })
}

// tail returns the page of a lane that was last appended to; 0: it is not known.
func (m *minds) tail(l lane) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of[l].tail
}

func (m *minds) appended(l lane, page int) {
	m.change(l, func(is *mind) { is.tail = page })
}

// busy reports whether a move has clashed a short while ago.
func (m *minds) busy(l lane) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Since(m.of[l].clashed) < mindFor
}

func (m *minds) change(l lane, do func(*mind)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.of == nil || len(m.of) > 10_000 {
		m.of = map[lane]mind{}
	}
	is := m.of[l]
	do(&is)
	m.of[l] = is
}
