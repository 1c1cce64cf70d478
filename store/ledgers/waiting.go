package ledgers

import (
	"context"
	"maps"
	"slices"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// undelivered are the tasks in letters of one ledger. A task is not delivered before one that it needs, because that
// would count as deleted. Nor is it delivered before an older task with the same key, because the key decides which of
// them is stored.
type undelivered struct {
	tasks map[store.ID]keyed
	keys  map[keyed][]store.ID // the tasks with a key
}

// keyed is the full key of a task, or zero.
type keyed struct{ queue, tenant, key string }

func keyOf(n *store.NewTask) keyed {
	if n.Key == "" {
		return keyed{}
	}
	return keyed{n.Queue, n.Tenant, n.Key}
}

func (u *undelivered) add(task store.ID, key keyed) {
	if _, is := u.tasks[task]; is {
		return
	}
	if u.tasks == nil {
		u.tasks, u.keys = map[store.ID]keyed{}, map[keyed][]store.ID{}
	}
	if u.tasks[task] = key; key != (keyed{}) {
		u.keys[key] = append(u.keys[key], task)
	}
}

func (u *undelivered) addAll(tasks []store.NewTask) {
	for i := range tasks {
		u.add(tasks[i].ID, keyOf(&tasks[i]))
	}
}

func (u *undelivered) forget(delivered map[store.ID]store.Enqueued) {
	for id := range delivered {
		if key := u.tasks[id]; key != (keyed{}) {
			u.keys[key] = slices.DeleteFunc(u.keys[key], func(other store.ID) bool { return other == id })
		}
		delete(u.tasks, id)
	}
}

// holdsUp reports whether a task has to wait for one that is not among own.
func (u *undelivered) holdsUp(n *store.NewTask, own map[store.ID]bool) bool {
	needed := func(need store.Need) bool { _, is := u.tasks[need.Task]; return is && !own[need.Task] }
	older := func(id store.ID) bool { return compareIDs(id, n.ID) < 0 && !own[id] }
	return slices.ContainsFunc(n.Needs, needed) || slices.ContainsFunc(u.keys[keyOf(n)], older)
}

// mostOlder is the maximum number of older letters that are read before a new letter is delivered. If there are more, a
// ledger has been away for long, and letters for others do not wait for those.
const mostOlder = 100

// addOlder adds the tasks of letters that are older than some that were just stored in a ledger, if a task in these has
// a key and there are not too many older ones. Older letters with the same key are added to those that are delivered,
// because the new ones would have to wait for them.
func (u *undelivered) addOlder(ctx context.Context, from *ledger, o *opened) error {
	if len(u.keys) == 0 || len(o.ids)+mostOlder >= store.MaxPage {
		return nil
	}
	before := slices.MaxFunc(o.ids, compareIDs)
	for i := 9; i < len(before); i++ { // the rest of a letter's id is random
		before[i] = 0xff
	}
	list := func(most int, noArgs bool) (mail []store.Task, err error) {
		mail, err = ask(ctx, from, func(ctx context.Context, e *postgres.Store) ([]store.Task, error) {
			return e.List(ctx, store.Filter{Queues: []string{letters}, Before: before, Limit: most + len(o.ids), NoArgs: noArgs})
		})
		return slices.DeleteFunc(mail, func(t store.Task) bool { return slices.Contains(o.ids, t.ID) }), err
	}
	if some, err := list(1, true); err != nil || len(some) == 0 {
		return err
	}
	mail, err := list(mostOlder+1, false)
	if err != nil || len(mail) > mostOlder {
		return err
	}
	own := maps.Clone(u.keys)
	for i := range mail {
		l, err := read(&mail[i])
		if err != nil {
			continue // looks report it
		}
		u.addAll(l.Tasks)
		if slices.ContainsFunc(l.Tasks, func(n store.NewTask) bool { return own[keyOf(&n)] != nil }) {
			o.add(&mail[i], l)
		}
	}
	return nil
}
