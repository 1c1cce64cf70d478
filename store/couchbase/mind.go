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

// minds holds what this handle remembers of lanes: the cursor, and the page that was last appended to. While only this
// handle claims from a lane, it need not read the cursor. If others claim too, moves clash, and for a while claims lock
// the cursor instead.
type minds struct {
	mu    sync.Mutex
	lanes map[lane]mind
}

type mind struct {
	mark
	at      time.Time // when the mark was written; zero if the mark is unknown
	clashed time.Time
	pause   time.Duration // before the next try to lock the cursor
	tail    int           // the page that was last appended to; 0 if unknown
	tailAt  time.Time     // when the tail became known
}

// tailFor is how long a handle remembers the page that was last appended to, and so that the lane is on its board.
const tailFor = 30 * time.Minute

// mindFor is how long a cursor is remembered, and how long claimers lock it after a clash.
const mindFor = time.Second

// The bounds of the pause before the next try to lock a cursor.
const (
	leastPause = 200 * time.Microsecond
	mostPause  = 40 * time.Millisecond
)

// locked records how many tries it took to lock a cursor. If it was more than one, others claim from the lane too.
func (m *minds) locked(l lane, tries int, pause time.Duration) {
	m.change(l, func(is *mind) {
		if is.pause = pause; tries == 1 {
			is.pause = max(pause/2, leastPause)
		} else {
			is.clashed = time.Now()
		}
	})
}

// of returns what is remembered of a lane.
func (m *minds) of(l lane) mind {
	m.mu.Lock()
	defer m.mu.Unlock()
	is := m.lanes[l]
	if time.Since(is.tailAt) > tailFor {
		is.tail = 0
	}
	return is
}

// known reports whether the remembered cursor can be used.
func (is *mind) known() bool { return time.Since(is.at) < mindFor && !is.busy() }

// busy reports whether a move has clashed recently.
func (is *mind) busy() bool { return time.Since(is.clashed) < mindFor }

func (m *minds) set(l lane, to *mark) {
	m.change(l, func(is *mind) { is.mark, is.at = *to, time.Now() })
}

func (m *minds) forget(l lane) {
	m.change(l, func(is *mind) { is.at = time.Time{} })
}

func (m *minds) clash(l lane) {
	m.change(l, func(is *mind) { is.at, is.clashed = time.Time{}, time.Now() })
}

func (m *minds) appended(l lane, page int) {
	m.change(l, func(is *mind) { is.tail, is.tailAt = page, time.Now() })
}

func (m *minds) change(l lane, do func(*mind)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lanes == nil || len(m.lanes) > 10_000 {
		m.lanes = map[lane]mind{}
	}
	is := m.lanes[l]
	do(&is)
	m.lanes[l] = is
}
