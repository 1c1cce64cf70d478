package tusktest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// Enqueued is a task as the code under test enqueued it.
type Enqueued[T tusk.Args] struct {
	store.NewTask
	Args T
}

// Want selects tasks. A zero field matches every task, and so does a nil *Want.
type Want struct {
	Queue    string
	Tenant   string
	Key      string
	Tags     []string      // the task has all of them
	Priority *int16        // a pointer, because 0 is a priority
	Delay    time.Duration // the exact delay
	Args     tusk.Args     // equal as JSON
	Count    int           // the number of such tasks; 0 means at least one
}

// RequireEnqueued fails the test unless matching tasks of T's kind were enqueued since the kit
// was created or reset. It does not matter whether their transaction was committed, or whether
// their keys were taken. It returns the tasks in order.
func RequireEnqueued[T tusk.Args](k *Kit, want *Want) []Enqueued[T] {
	k.t.Helper()
	found, others := enqueuedOf[T](k, want)
	if want != nil && want.Count > 0 && len(found) != want.Count {
		k.t.Fatalf("tusktest: %d tasks%s were enqueued, want %d%s", len(found), describe[T](want), want.Count, others)
	}
	if len(found) == 0 {
		k.t.Fatalf("tusktest: no task%s was enqueued%s", describe[T](want), others)
	}
	return found
}

// RequireNotEnqueued fails the test if a matching task of T's kind was enqueued.
func RequireNotEnqueued[T tusk.Args](k *Kit, want *Want) {
	k.t.Helper()
	if found, _ := enqueuedOf[T](k, want); len(found) > 0 {
		k.t.Fatalf("tusktest: %d tasks%s were enqueued, want none; the first: %s", len(found), describe[T](want),
			show(&found[0].NewTask))
	}
}

// AllEnqueued returns all tasks that were enqueued since the kit was created or reset, in order.
func (k *Kit) AllEnqueued() []store.NewTask {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]store.NewTask(nil), k.enqueued...)
}

// enqueuedOf returns the tasks that match, and a text that lists the others.
func enqueuedOf[T tusk.Args](k *Kit, want *Want) (found []Enqueued[T], others string) {
	k.t.Helper()
	var zero T
	var rest []string
	for _, n := range k.AllEnqueued() {
		if n.Kind != zero.Kind() || !want.matches(&n) {
			rest = append(rest, "\n  "+show(&n))
			continue
		}
		e := Enqueued[T]{NewTask: n}
		if err := json.Unmarshal(n.Args, &e.Args); err != nil {
			k.t.Fatalf("tusktest: args of %s do not fit %T: %v", show(&n), e.Args, err)
		}
		found = append(found, e)
	}
	if len(rest) > 0 {
		others = "; others were:" + strings.Join(rest, "")
	}
	return found, others
}

func (w *Want) matches(n *store.NewTask) bool {
	if w == nil {
		return true
	}
	for _, tag := range w.Tags {
		if !contains(n.Tags, tag) {
			return false
		}
	}
	return (w.Queue == "" || w.Queue == n.Queue) && (w.Tenant == "" || w.Tenant == n.Tenant) &&
		(w.Key == "" || w.Key == n.Key) && (w.Priority == nil || *w.Priority == n.Priority) &&
		(w.Delay == 0 || w.Delay == n.Delay) && (w.Args == nil || sameJSON(w.Args, n.Args))
}

func contains(list []string, text string) bool {
	for _, s := range list {
		if s == text {
			return true
		}
	}
	return false
}

// sameJSON compares args with stored ones as JSON values.
func sameJSON(args any, stored []byte) bool {
	text, err := json.Marshal(args)
	var a, b any
	return err == nil && json.Unmarshal(text, &a) == nil && json.Unmarshal(stored, &b) == nil && reflect.DeepEqual(a, b)
}

func describe[T tusk.Args](w *Want) string {
	var zero T
	text := fmt.Sprintf(" of kind %q", zero.Kind())
	if w == nil {
		return text
	}
	add := func(name string, value any, set bool) {
		if set {
			text += fmt.Sprintf(", %s %v", name, value)
		}
	}
	add("queue", w.Queue, w.Queue != "")
	add("tenant", w.Tenant, w.Tenant != "")
	add("key", w.Key, w.Key != "")
	add("tags", w.Tags, len(w.Tags) > 0)
	if w.Priority != nil {
		add("priority", *w.Priority, true)
	}
	add("delay", w.Delay, w.Delay != 0)
	add("args", fmt.Sprintf("%+v", w.Args), w.Args != nil)
	return text
}

func show(n *store.NewTask) string {
	text := fmt.Sprintf("%s %s in queue %s", n.Kind, n.Args, n.Queue)
	if n.Key != "" {
		text += ", key " + n.Key
	}
	if n.Tenant != "" {
		text += ", tenant " + n.Tenant
	}
	return text
}
