package sqlite

import (
	"cmp"
	"encoding/hex"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/rules"
)

// decide lets the rules decide what follows from an operation, and writes it.
func (w *work) decide(verb func(*rules.Batch) error) error {
	w.rows = map[store.ID]*stored{}
	b := rules.New(w.time(), w)
	if err := verb(b); err != nil {
		return err
	}
	return w.apply(b)
}

// Read implements rules.Source. There is no other writer in the meantime, so nothing has to be locked.
func (w *work) Read(want *rules.Want) (*rules.Found, error) {
	found := &rules.Found{}
	if err := w.readKeys(want.Keys, found); err != nil {
		return nil, err
	}
	if err := w.readTasks(want.Tasks, found); err != nil {
		return nil, err
	}
	if err := w.readNeeds(want.Needs, found); err != nil {
		return nil, err
	}
	return found, w.readChildren(want.Children, found)
}

func (w *work) readKeys(names []rules.KeyName, found *rules.Found) error {
	for _, n := range names {
		err := w.all("key.find", func(r row) error {
			k := rules.Key{KeyName: n, Holder: r.id(0), Awaiting: r.id(1), Ended: r.id(4), Tasks: r.int(3)}
			if r.int(2) != 0 {
				k.Source = time.Unix(0, r.int(2)).UTC()
			}
			found.Keys = append(found.Keys, k)
			return nil
		}, n.Queue, n.Tenant, n.Key)
		if err != nil {
			return err
		}
	}
	return nil
}

// readTasks reads tasks, and remembers their spots for apply.
func (w *work) readTasks(ids []store.ID, found *rules.Found) error {
	if len(ids) == 0 {
		return nil
	}
	names := w.names()
	return w.all("task.find", func(r row) error {
		t := &stored{}
		if err := t.scan(r, names); err != nil {
			return err
		}
		t.scanRest(r)
		t.Awaits, t.Stopping, t.StopReason = r.int(29) != 0, !r.null(30), r.text(30)
		if t.State == store.Running {
			w.lend(t)
		}
		w.rows[t.ID] = t
		found.Tasks = append(found.Tasks, &t.Row)
		return nil
	}, inHex(ids))
}

// lend sets the lease and the worker of a running task, if its lease is among those that were looked up.
func (w *work) lend(t *stored) {
	for _, leases := range w.leases {
		if l := covering(leases, t.lane, t.pos); l != nil {
			t.hold(l.token, l.worker, at(l.claimedAt))
			return
		}
	}
	t.hold(store.Token{}, store.ID{}, t.ClaimedAt)
}

func (w *work) readNeeds(ids []store.ID, found *rules.Found) error {
	if len(ids) == 0 {
		return nil
	}
	return w.all("need.list", func(r row) error {
		need := store.Need{Task: r.id(1), OnFailure: store.OnFailure(r.int(2))}
		own := rules.OpenNeed{Need: need, Open: !r.null(3)}
		found.Needs = append(found.Needs, rules.OwnNeed{Child: r.id(0), OpenNeed: own})
		return nil
	}, inHex(ids))
}

func (w *work) readChildren(ids []store.ID, found *rules.Found) error {
	if len(ids) == 0 {
		return nil
	}
	return w.all("need.children", func(r row) error {
		need := store.Need{Task: r.id(1), OnFailure: store.OnFailure(r.int(2))}
		found.Children = append(found.Children, rules.Edge{Child: r.id(0), Need: need})
		return nil
	}, inHex(ids))
}

// inHex returns a JSON array of ids, each encoded for unhex.
func inHex(ids []store.ID) string {
	text := make([]byte, 0, 2+len(ids)*(2*len(store.ID{})+3))
	text = append(text, '[')
	for i, id := range ids {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(hex.AppendEncode(append(text, '"'), id[:]), '"')
	}
	return string(append(text, ']'))
}

// source returns a source time as tusk_key stores it: 0 if it is unknown.
func source(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return cmp.Or(nanos(t), 1)
}
