package ui

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/tuskqueue/tusk"
)

// taskForm is a task to enqueue, as a form has it.
type taskForm struct {
	Kind, Queue, Args, Key, Tenant, Tags, When, Priority, MaxAttempts string
	Problem                                                           string
	Of                                                                string // the task that it was copied from
}

func newTask(v *visit) (answer, error) {
	f := taskForm{Queue: tusk.DefaultQueue, Args: "{}"}
	if of := v.r.URL.Query().Get("of"); of != "" {
		if !v.who.May("read") {
			return answer{}, failure(http.StatusForbidden, "Your role may not read tasks.")
		}
		v.r.SetPathValue("id", of)
		t, err := v.visible()
		if err != nil {
			return answer{}, err
		}
		f = taskForm{Kind: t.Kind, Queue: t.Queue, Args: v.code(t.Args, true).Text, Tenant: t.Tenant, Tags: strings.Join(t.Tags, ", "), Of: of,
			Priority: strconv.Itoa(int(t.Priority)), MaxAttempts: strconv.Itoa(t.MaxAttempts)}
	}
	return answer{page: "new", title: "New task", section: "tasks", data: f}, nil
}

func enqueue(v *visit) (answer, error) {
	form := v.r.PostForm
	f := taskForm{Kind: form.Get("kind"), Queue: form.Get("queue"), Args: form.Get("args"), Key: form.Get("key"), Tenant: form.Get("tenant"),
		Tags: form.Get("tags"), When: form.Get("when"), Priority: form.Get("priority"), MaxAttempts: form.Get("max_attempts"), Of: form.Get("of")}
	v.target = f.Kind
	e, err := v.enqueueForm(f)
	if err != nil {
		known := failureOf(err)
		if known.Status >= 500 || known.Status == http.StatusForbidden {
			return answer{}, err
		}
		f.Problem = known.Text
		return answer{page: "new", title: "New task", section: "tasks", data: f, status: known.Status}, nil
	}
	v.target = e.ID.String()
	about := "enqueued"
	if e.Result != tusk.Added {
		about = "duplicate"
	}
	if !v.who.May("read") {
		return goTo("/tasks/new", about), nil
	}
	return goTo("/tasks/"+e.ID.String(), about), nil
}

func (v *visit) enqueueForm(f taskForm) (e tusk.Enqueued, err error) {
	o := &tusk.Options{Queue: f.Queue, Tenant: f.Tenant, Key: f.Key}
	for _, tag := range strings.Split(f.Tags, ",") {
		if tag = strings.TrimSpace(tag); tag != "" {
			o.Tags = append(o.Tags, tag)
		}
	}
	if f.When != "" {
		if o.RunAt, o.Delay, err = when(f.When); err != nil {
			return e, err
		}
	}
	if f.Priority != "" {
		n, err := strconv.ParseInt(f.Priority, 10, 16)
		if err != nil {
			return e, failure(http.StatusBadRequest, "The priority is a whole number from -32768 to 32767.")
		}
		o.Priority = int16(n)
	}
	if f.MaxAttempts != "" {
		if o.MaxAttempts, err = strconv.Atoi(f.MaxAttempts); err != nil {
			return e, failure(http.StatusBadRequest, "The most attempts are a whole number.")
		}
	}
	queue := f.Queue
	if queue == "" {
		queue = tusk.DefaultQueue
	}
	if !v.who.Sees(queue, f.Tenant) {
		return e, failure(http.StatusForbidden, "You may not use this queue and tenant.")
	}
	var stored []byte
	if f.Of != "" && v.who.May("read") {
		v.r.SetPathValue("id", f.Of)
		if t, err := v.visible(); err == nil {
			stored = t.Args
		}
	}
	args, err := v.unmask(f.Args, stored)
	if err != nil {
		return e, err
	}
	return v.client.Enqueue(v.r.Context(), tusk.RawArgs{Name: f.Kind, JSON: args}, o)
}
