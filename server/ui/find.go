package ui

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/query"
	"github.com/tuskqueue/tusk/store"
)

// found is one result of a search.
type found struct {
	What, Name, About string
	To                string
}

type findData struct {
	Text  string
	Found []found
	More  bool // some results are not shown
}

const (
	shownFound = 20
	keyTasks   = 5
	findAge    = 5 * time.Second
)

// find looks for what a text may be: a part of the name of a queue, a kind, a schedule, a pipeline or a host, a key,
// or a part of an id. The script shows the results on Ctrl-K.
func find(v *visit) (answer, error) {
	text := strings.TrimSpace(v.r.URL.Query().Get("q"))
	a := answer{page: "find", title: "Search", section: "find", data: findData{}}
	if err := query.Text("q", text); err != nil {
		return a, err
	}
	if text == "" {
		return a, nil
	}
	all, err := v.tasksOf(text)
	if err != nil {
		return a, err
	}
	named, err := v.named(strings.ToLower(text))
	if err != nil {
		return a, err
	}
	all = append(all, named...)
	a.data = findData{text, all[:min(len(all), shownFound)], len(all) > shownFound}
	return a, nil
}

// tasksOf finds tasks and workflows by an id, a part of an id, or a key.
func (v *visit) tasksOf(text string) (all []found, err error) {
	ctx := v.r.Context()
	var tasks []tusk.TaskInfo
	if query.IsPart(text) {
		id, err := query.FindID(ctx, v.client, v.who, text)
		var several *query.AmbiguousError
		switch {
		case errors.As(err, &several):
			tasks = several.Tasks
		case err == nil:
			if tasks, err = v.client.List(ctx, tusk.Filter{IDs: []tusk.ID{id}, NoArgs: true}); err != nil {
				return nil, err
			}
			if w, err := v.client.List(ctx, tusk.Filter{Workflow: id, Limit: 1, NoArgs: true}); err == nil && len(w) > 0 &&
				v.who.Sees(w[0].Queue, w[0].Tenant) {
				all = append(all, found{"Workflow", id.String(), "", v.url("workflows", id)})
			}
		case !errors.Is(err, tusk.ErrNotFound):
			return nil, err
		}
	}
	keyed, _, err := query.Visible(ctx, v.client, v.who, tusk.Filter{Key: text, Limit: keyTasks, NoArgs: true})
	if err != nil {
		return nil, err
	}
	for _, t := range append(tasks, keyed...) {
		if v.who.Sees(t.Queue, t.Tenant) {
			all = append(all, found{"Task", t.ID.String(), t.Kind + ", " + t.State.String(), v.url("tasks", t.ID)})
		}
	}
	return all, nil
}

// named finds items with the text in their name. Visitors who are limited to tenants find only schedules, because the
// other pages are not for them.
func (v *visit) named(text string) (all []found, err error) {
	add := func(what, name, about string, to ...any) {
		f := found{what, name, about, v.url(to...)}
		if strings.Contains(strings.ToLower(name+" "+about), text) && !slices.Contains(all, f) {
			all = append(all, f)
		}
	}
	ctx := v.r.Context()
	schedules, err := v.client.Schedules(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range schedules {
		if v.who.Sees(s.Queue, s.Tenant) {
			add("Schedule", s.Name, "", "schedules", s.Name)
		}
	}
	if !v.who.SeesAllTenants() {
		return all, nil
	}
	s, err := v.Feed.Recent(ctx, findAge)
	if err != nil {
		return nil, err
	}
	for _, q := range s.Queues {
		if v.who.SeesQueue(q.Name) {
			add("Queue", q.Name, "", "queues", q.Name)
		}
	}
	for i := range s.Minute {
		if v.who.SeesQueue(s.Minute[i].Queue) {
			add("Kind", s.Minute[i].Kind, "", "kinds", s.Minute[i].Kind)
		}
	}
	for _, w := range s.Workers {
		if !v.seesWorker(w) {
			continue
		}
		for _, kind := range w.Kinds {
			add("Kind", kind, "", "kinds", kind)
		}
		add("Worker", w.ID.String(), "on "+w.Host, "workers", w.ID)
	}
	return all, v.failingKinds(add)
}

// failingKinds adds the kinds of failed tasks, because such a kind may not have run recently.
func (v *visit) failingKinds(add func(what, name, about string, to ...any)) error {
	groups, _, err := Groups(v.r.Context(), v.client, v.who, store.ErrorFilter{Since: time.Now().Add(-day), Limit: 100})
	for _, g := range groups {
		add("Kind", g.Kind, "", "kinds", g.Kind)
	}
	return err
}
