package ui

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/store"
)

// taskForm is a task to enqueue, as shown in a form.
type taskForm struct {
	Kind, Queue, Args, Key, Tenant, Tags, When, Expires, Deadline, Priority, MaxAttempts, Weight string
	Ephemeral                                                                                    bool
	Problem                                                                                      string
	// Of is the task that it was copied from.
	Of   string
	Edit bool // it replaces that task
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
		f = taskForm{Kind: t.Kind, Queue: t.Queue, Args: v.code(t.Args, true).Text, Tenant: t.Tenant,
			Tags: strings.Join(t.Tags, ", "), Of: of,
			Priority: strconv.Itoa(int(t.Priority)), MaxAttempts: strconv.Itoa(t.MaxAttempts), Weight: strconv.Itoa(t.Weight),
			Ephemeral: t.Ephemeral}
		if time.Until(t.Deadline) > 0 {
			f.Deadline = t.Deadline.UTC().Format(time.RFC3339Nano)
		}
		if time.Until(t.ExpiresAt) > 0 {
			f.Expires = t.ExpiresAt.UTC().Format(time.RFC3339Nano)
		}
		if v.r.URL.Query().Get("edit") == "1" {
			if err := v.mayReplace(t); err != nil {
				return answer{}, err
			}
			if f.Edit, f.Key = true, t.Key; time.Until(t.RunAt) > 0 {
				f.When = t.RunAt.UTC().Format(time.RFC3339Nano)
			}
		}
	}
	return answer{page: "new", title: f.title(), section: "tasks", data: f}, nil
}

func enqueue(v *visit) (answer, error) {
	form := v.r.PostForm
	f := taskForm{Kind: form.Get("kind"), Queue: form.Get("queue"), Args: form.Get("args"), Key: form.Get("key"),
		Tenant: form.Get("tenant"),
		Tags:   form.Get("tags"), When: form.Get("when"), Priority: form.Get("priority"),
		MaxAttempts: form.Get("max_attempts"), Of: form.Get("of"), Edit: form.Get("edit") == "1",
		Expires: form.Get("expires"), Deadline: form.Get("deadline"), Weight: form.Get("weight"),
		Ephemeral: form.Get("ephemeral") != ""}
	v.target = f.Kind
	e, err := v.enqueueForm(f)
	if half := (*halfError)(nil); errors.As(err, &half) {
		v.Log.Error("page failed", "path", v.r.URL.Path, "error", half.err)
		f.Edit, f.Problem = half.edits, half.Error()
		return answer{page: "new", title: f.title(), section: "tasks", data: f,
			status: failureOf(half.err).Status}, nil
	}
	if err != nil {
		a := answer{page: "new", title: f.title(), section: "tasks"}
		if f.Problem, err = a.explain(err); err != nil {
			return answer{}, err
		}
		a.data = f
		return a, nil
	}
	v.target = e.ID.String()
	about := "enqueued"
	switch {
	case f.Edit && e.Result != tusk.Skipped:
		about, v.detail = "changed", "in place of "+short(f.Of)
	case e.Result != tusk.Added:
		about = "duplicate"
	}
	if !v.who.May("read") {
		return goTo("/tasks/new", about), nil
	}
	return goTo("/tasks/"+e.ID.String(), about), nil
}

// tags splits text at commas. Unlike other words, tags may contain spaces.
func tags(text string) (all []string) {
	for _, tag := range strings.Split(text, ",") {
		if tag = strings.TrimSpace(tag); tag != "" {
			all = append(all, tag)
		}
	}
	return all
}

// options returns the options that the form shows.
func (f taskForm) options() (o *tusk.Options, err error) {
	o = &tusk.Options{Queue: f.Queue, Tenant: f.Tenant, Key: f.Key, Ephemeral: f.Ephemeral,
		Tags: tags(f.Tags)}
	if f.When != "" {
		if o.RunAt, o.Delay, err = when(f.When); err != nil {
			return nil, err
		}
	}
	if f.Expires != "" {
		if o.ExpiresAt, o.ExpiresIn, err = when(f.Expires); err != nil {
			return nil, err
		}
	}
	if f.Deadline != "" {
		if o.Deadline, o.DeadlineIn, err = when(f.Deadline); err != nil {
			return nil, err
		}
	}
	if f.Priority != "" {
		n, err := strconv.ParseInt(f.Priority, 10, 16)
		if err != nil {
			return nil, failure(http.StatusBadRequest, "The priority is a whole number from -32768 to 32767.")
		}
		o.Priority = int16(n)
	}
	if f.MaxAttempts != "" {
		if o.MaxAttempts, err = strconv.Atoi(f.MaxAttempts); err != nil {
			return nil, failure(http.StatusBadRequest, "The most attempts are a whole number.")
		}
	}
	if o.Weight, err = number(f.Weight); err != nil {
		return nil, failure(http.StatusBadRequest, "The weight is a whole number.")
	}
	return o, nil
}

func (v *visit) enqueueForm(f taskForm) (e tusk.Enqueued, err error) {
	o, err := f.options()
	if err != nil {
		return e, err
	}
	if !v.who.Sees(cmp.Or(f.Queue, tusk.DefaultQueue), f.Tenant) {
		return e, failure(http.StatusForbidden, "You may not use this queue and tenant.")
	}
	var of *tusk.TaskInfo
	var stored []byte
	if f.Of != "" && v.who.May("read") {
		v.r.SetPathValue("id", f.Of)
		if of, err = v.visible(); err == nil {
			// Settings that the form does not show.
			stored, o.Timeout, o.StallTimeout, o.Metadata, o.Backoff = of.Args, of.Timeout, of.StallTimeout,
				of.Metadata, of.Backoff
			o.Partition = of.Partition
		} else if f.Edit {
			return e, err
		}
	}
	args, err := v.unmask(f.Args, stored)
	if err != nil {
		return e, err
	}
	if len(stored) > 0 && bytes.Equal(args, stored) { // they may be encrypted for that task only
		again, err := v.client.Again(*of)
		if errors.Is(err, tusk.ErrEncrypted) {
			return e, failure(http.StatusConflict,
				"The args are encrypted, and this server cannot read them: write them anew, or start it with the key ring.")
		}
		if err != nil {
			return e, err
		}
		if raw, inline := again.Args.(tusk.RawArgs); inline {
			args = raw.JSON
		} else if of.Kind == f.Kind {
			return v.store(of, f, again.Args, o)
		} else {
			return e, failure(http.StatusConflict,
				"The args are kept outside the database: a task of another kind cannot take them along.")
		}
	}
	return v.store(of, f, tusk.RawArgs{Name: f.Kind, JSON: args}, o)
}

// store enqueues a task, or replaces the edited one.
func (v *visit) store(of *tusk.TaskInfo, f taskForm, args tusk.Args, o *tusk.Options) (tusk.Enqueued, error) {
	if f.Edit {
		return v.replace(of, args, o)
	}
	return v.client.Enqueue(v.r.Context(), args, o)
}

func (f taskForm) title() string {
	if f.Edit {
		return "Edit task"
	}
	return "New task"
}

// mayReplace explains why a task cannot be edited. A task that has started cannot change.
func (v *visit) mayReplace(t *tusk.TaskInfo) error {
	switch {
	case !v.who.May(access.Operate) || !v.who.May(access.Enqueue):
		return failure(http.StatusForbidden, "Your role (%s) may not edit tasks.", v.who.Role)
	case !replaceable(t):
		return failure(http.StatusConflict,
			"A task that is %v, belongs to a workflow, or has a key of a schedule or of unique args cannot be edited: clone it.",
			t.State)
	}
	return nil
}

func replaceable(t *tusk.TaskInfo) bool {
	return t.Workflow.IsZero() && !tusk.ReservedKey(t.Key) &&
		(t.State == tusk.StateScheduled || t.State == tusk.StateAvailable || t.State == tusk.StateRetryable)
}

// replace replaces a task by its edited version. If both have the same key, queue and tenant, that is a single write.
// Otherwise the old task is cancelled first, so that the two never both run.
func (v *visit) replace(of *tusk.TaskInfo, args tusk.Args, o *tusk.Options) (e tusk.Enqueued, err error) {
	if of == nil {
		return e, tusk.ErrNotFound
	}
	if err := errors.Join(v.mayReplace(of), v.client.Validate(args, o)); err != nil {
		return e, err
	}
	queue := cmp.Or(o.Queue, tusk.DefaultQueue)
	if of.Key != "" && of.Key == o.Key && of.Queue == queue && of.Tenant == o.Tenant {
		o.OnConflict = tusk.Replace
		return v.client.Enqueue(v.r.Context(), args, o)
	}
	if err := v.keyFree(queue, o); err != nil {
		return e, err
	}
	if err := v.withdraw(of); err != nil {
		return e, err
	}
	o.ID = tusk.NewID()
	sure, done := context.WithTimeout(context.WithoutCancel(v.r.Context()), 10*time.Second)
	defer done()
	if e, err = v.client.Enqueue(sure, args, o); err != nil {
		return e, &halfError{err, false, fmt.Sprintf("The task %s is cancelled, and the edited one was not enqueued: %s "+
			"Enqueue it with this form, unless there is a task %s by now: the answer alone may have been lost.",
			of.ID, failureOf(err).Text, o.ID)}
	}
	return e, nil
}

// withdraw cancels a task that has not begun. A cancel would stop a task that has begun meanwhile, but a reschedule
// leaves it alone: so a task that may soon run is postponed first.
func (v *visit) withdraw(of *tusk.TaskInfo) error {
	const ahead = time.Minute
	changes := []tusk.Change{{Op: tusk.OpCancel, Reason: "replaced by " + v.who.Name + " with an edited task"}}
	if time.Until(of.RunAt) < ahead {
		changes = slices.Insert(changes, 0, tusk.Change{Op: tusk.OpReschedule, Delay: ahead})
	}
	for _, change := range changes {
		edited, err := v.client.Edit(v.r.Context(), []tusk.ID{of.ID}, change)
		switch {
		case err != nil && change.Op == tusk.OpCancel && len(changes) > 1:
			return &halfError{err, true, fmt.Sprintf("The task %s was postponed by up to a minute and may not be cancelled: %s "+
				"If it is not, it runs unchanged. Send this form again to edit it.", of.ID, failureOf(err).Text)}
		case err != nil:
			return err
		case edited[0].Result == store.Missing:
			return tusk.ErrNotFound
		case edited[0].Result == store.Requested:
			return failure(http.StatusConflict, "The task has begun meanwhile and was told to stop. The edited one was not "+
				"enqueued: clone the task once it has ended.")
		case edited[0].Result != store.Changed:
			return failure(http.StatusConflict, "The task is %v by now and was not changed. The edited one was not enqueued.",
				edited[0].State)
		}
	}
	return nil
}

// halfError says how far an edit got that failed.
type halfError struct {
	err   error
	edits bool // the form still edits the task
	text  string
}

func (e *halfError) Error() string { return e.text }
func (e *halfError) Unwrap() error { return e.err }

// keyFree fails if another unfinished task has the key: the enqueue would be skipped, and the edited task would be
// lost.
func (v *visit) keyFree(queue string, o *tusk.Options) error {
	if o.Key == "" {
		return nil
	}
	holders, err := v.client.List(v.r.Context(),
		tusk.Filter{Queues: []string{queue}, Tenants: []string{o.Tenant}, Key: o.Key,
			States: tusk.StatesFor(tusk.OpCancel, nil), Limit: 1})
	if err == nil && len(holders) > 0 {
		err = failure(http.StatusConflict, "Another unfinished task of that queue and tenant has the key.")
	}
	return err
}
