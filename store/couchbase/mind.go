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

// minds are what this handle remembers of cursors. Where it alone claims from a lane, it need not read the cursor
// again. Where others claim too, moves clash, and for a while claimers lock the cursor instead.
type minds struct {
	mu sync.Mutex
	of map[lane]mind
}

type mind struct {
	mark
	at      time.Time // when it was written; zero: it is not known
	clashed time.Time
}

// mindFor is how long a cursor is remembered, and for how long claimers lock it after a clash.
const mindFor = time.Second

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
