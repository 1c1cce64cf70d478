package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/tuskqueue/tusk/server/feed"
)

// Snapshot is one event of the stream: the queues and the workers.
type Snapshot struct {
	At      time.Time `json:"at"`
	Queues  []Queue   `json:"queues"`
	Workers []Worker  `json:"workers"`
}

func (c *call) viewSnapshot(s *feed.Snapshot) Snapshot {
	v := Snapshot{At: utc(s.At), Queues: []Queue{}, Workers: []Worker{}}
	for _, q := range s.Queues {
		if c.who.SeesQueue(q.Name) {
			v.Queues = append(v.Queues, viewQueue(q))
		}
	}
	for _, w := range s.Workers {
		if c.seesWorker(w) {
			v.Workers = append(v.Workers, c.viewWorker(w))
		}
	}
	return v
}

// streamEvents sends a snapshot every second while anything changes. It checks the caller's access regularly, so that
// a revocation ends the stream.
func streamEvents(c *call, _ struct{}) (nothing, error) {
	snapshots, leave := c.feed.Watch(c.who.ID)
	if snapshots == nil && c.closing.Load() {
		return nothing{}, shuttingDown()
	}
	if snapshots == nil {
		feed.Refused(c.r.Context())
		return nothing{}, busy("you may have at most %d event streams, and the server %d: close some", feed.OwnWatchers,
			feed.MaxWatchers)
	}
	defer leave()
	h := c.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	control := http.NewResponseController(c.w)
	_ = control.SetReadDeadline(time.Time{}) // otherwise it would end the request
	beat := time.NewTicker(15 * time.Second)
	defer beat.Stop()
	for {
		text := ": still here\n\n"
		select {
		case <-c.r.Context().Done():
			return nothing{}, nil
		case s, open := <-snapshots:
			if !open {
				return nothing{}, nil
			}
			body, err := json.Marshal(c.viewSnapshot(s))
			if err != nil {
				return nothing{}, err
			}
			text = fmt.Sprintf("event: snapshot\ndata: %s\n\n", body)
		case <-beat.C:
			if who, err := c.gate.Identify(c.r); err != nil || !who.May(c.route.Need) {
				return nothing{}, nil
			}
		}
		_ = control.SetWriteDeadline(time.Now().Add(30 * time.Second))
		if _, err := c.w.Write([]byte(text)); err != nil {
			return nothing{}, nil // the client has gone
		}
		if err := control.Flush(); err != nil {
			return nothing{}, nil
		}
	}
}
