package ui

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/archive"
	"github.com/tuskqueue/tusk/archive/rerun"
	"github.com/tuskqueue/tusk/internal/duration"
	"github.com/tuskqueue/tusk/server/query"
)

const archiveSearch = 3 * time.Second // how long a page of an archive search may read

type archiveData struct {
	Query    query.Archived
	Values   url.Values
	Searched bool
	Found    archive.Found
	Tasks    []tusk.TaskInfo
	Next     string // query of the next page
	First    string // query of the first page; empty on that page
	Health   *archive.Health
	Reruns   []rerun.Rerun
}

// States lists, for templates, the states that archived tasks can have.
func (archiveData) States() []string { return []string{"completed", "cancelled", "discarded"} }

// Chosen reports, for templates, whether the search is limited to a state.
func (d archiveData) Chosen(state string) bool { return slices.Contains(d.Query.State, state) }

func searchArchive(v *visit) (answer, error) {
	a := answer{page: "archive", title: "Archive", section: "archive"}
	values := v.r.URL.Query()
	d := archiveData{Query: query.ArchivedFrom(values)}
	d.Values = d.Query.Values()
	if id, err := tusk.ParseID(d.Query.Key); err == nil { // an id in the search field names a task, not a key
		return goTo("/tasks/" + id.String()), nil
	}
	q, err := d.Query.Query(v.Mask)
	if err != nil {
		return a, err
	}
	health, err := archive.Examine(v.r.Context(), v.client.Store(), v.Archive, time.Now())
	if err != nil {
		return a, err
	}
	if v.who.SeesAllTenants() {
		d.Health = &health
	}
	all, err := rerun.List(v.r.Context(), v.client.Store())
	if err != nil {
		return a, err
	}
	for _, r := range all {
		if v.who.Knows(r.Owner) && len(d.Reruns) < 10 {
			d.Reruns = append(d.Reruns, r)
		}
	}
	if d.Searched = len(values) > 0 && health.State != archive.Away; d.Searched {
		q.Sees = v.who.Bounds()
		if d.Found, err = v.Archive.Search(v.r.Context(), q, values.Get("place"), pageSize, archiveSearch, nil); err != nil {
			return a, archiveFailure(err)
		}
		for _, t := range d.Found.Tasks {
			d.Tasks = append(d.Tasks, v.client.Describe(t))
		}
	}
	if d.Found.Next != "" {
		next := d.Query.Values()
		next.Set("place", d.Found.Next)
		d.Next = "?" + next.Encode()
	}
	if values.Get("place") != "" {
		d.First = "?" + d.Values.Encode()
	}
	a.data = d
	return a, nil
}

func archiveFailure(err error) error {
	switch {
	case errors.Is(err, archive.ErrNotFound):
		return tusk.ErrNotFound
	case errors.Is(err, archive.ErrCursor), errors.Is(err, archive.ErrMoved):
		return failure(http.StatusConflict,
			"The files of the archive were changed meanwhile. Search again from the first page.")
	}
	return err
}

// archivedTask shows the task in the path, which has left the database.
func (v *visit) archivedTask() (answer, error) {
	t, err := v.inArchive()
	if err != nil {
		return answer{}, err
	}
	d := taskData{TaskInfo: t, All: v.r.URL.Query().Get("all") == "1"}
	if t.Detail != nil {
		d.Detail = *t.Detail
	}
	slices.Reverse(d.Detail.Attempts)
	return answer{page: "archived", title: t.Kind, section: "archive", data: d}, nil
}

// inArchive reads the task in the path from the archive, if the visitor may see it.
func (v *visit) inArchive() (*tusk.TaskInfo, error) {
	id, err := tusk.ParseID(v.r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	v.target = id.String()
	v.leave() // an object store may be slow
	t, err := v.Archive.Find(v.r.Context(), id)
	if err == nil && !v.who.Sees(t.Queue, t.Tenant) {
		err = archive.ErrNotFound
	}
	if err != nil {
		return nil, archiveFailure(err)
	}
	info := v.client.Describe(t)
	return &info, nil
}

func (v *visit) carrier() *rerun.Carrier {
	return &rerun.Carrier{Client: v.client, Archive: v.Archive, Log: v.Log}
}

func rerunArchived(v *visit) (answer, error) {
	t, err := v.inArchive()
	if err != nil {
		return answer{}, err
	}
	e, err := v.carrier().One(v.r.Context(), t.ID, v.who.Sees)
	if errors.Is(err, tusk.ErrEncrypted) {
		return answer{}, failure(http.StatusConflict, "The args are encrypted, and this server does not have the key.")
	}
	if err != nil {
		return answer{}, archiveFailure(err)
	}
	v.detail = "as " + e.ID.String()
	about := "enqueued"
	if e.Result != tusk.Added {
		about = "duplicate"
	}
	return goTo("/tasks/"+e.ID.String(), about), nil
}

// restoreArchived asks the archiving process to put a task back into the database.
func restoreArchived(v *visit) (answer, error) {
	t, err := v.inArchive()
	if err != nil {
		return answer{}, err
	}
	if err := archive.CanRestore(v.client.Store()); err != nil {
		return answer{}, failure(http.StatusConflict,
			"The engine of this database takes no tasks back from an archive: run it again instead.")
	}
	r, err := archive.RequestRestore(v.r.Context(), v.client.Store(),
		archive.Restore{ID: tusk.NewID(), IDs: []tusk.ID{t.ID}, Expected: 1, By: v.who.Name, Via: v.who.Via})
	v.detail = r.ID.String()
	return goTo("/archive/keeping", "started"), err
}

// rerunFound first asks for confirmation, with the number of matching tasks, and then begins.
func rerunFound(v *visit) (answer, error) {
	text := v.r.PostFormValue("query")
	values, err := url.ParseQuery(text)
	if err != nil {
		return answer{}, failure(http.StatusBadRequest, "The filter cannot be read.")
	}
	in := query.ArchivedFrom(values)
	q, err := in.Query(v.Mask)
	if err != nil {
		return answer{}, err
	}
	v.detail = "where " + in.Values().Encode()
	r := rerun.Rerun{Query: q, Owner: v.who.ID, By: v.who.Name, Via: v.who.Via, Queues: v.who.Queues,
		Tenants: v.who.Tenants}
	n, err := v.carrier().Count(v.r.Context(), r, counting, nil)
	if err != nil {
		return answer{}, archiveFailure(err)
	}
	number := strconv.FormatInt(n.Tasks, 10)
	if n.More {
		number += "+"
	}
	if v.r.PostFormValue("confirm") != "yes" ||
		strings.TrimSpace(v.r.PostFormValue("typed")) != v.r.PostFormValue("type") {
		return answer{page: "confirm", title: "Run all of them again?", section: "archive", data: confirmation{
			Question: "Run all " + number + " tasks that match again?", Detail: filterWords(query.Tasks(in)) +
				" Each becomes a new task.",
			Button: "Run " + number + " tasks", Type: number, Action: v.url("archive", "reruns"),
			Fields: url.Values{"query": {text}, "type": {number}}, Back: v.url("archive") + "?" + in.Values().Encode()}}, nil
	}
	if !n.More {
		r.Expected = n.Tasks
	}
	begun, err := rerun.Start(v.r.Context(), v.client.Store(), r)
	if err != nil {
		return answer{}, err
	}
	v.target = begun.ID.String()
	return goTo("/archive", "started"), nil
}

func cancelRerun(v *visit) (answer, error) {
	v.target = v.r.PathValue("id")
	id, err := tusk.ParseID(v.target)
	if err != nil {
		return answer{}, tusk.ErrNotFound
	}
	r, err := rerun.Get(v.r.Context(), v.client.Store(), id)
	if err == nil && !v.who.Knows(r.Owner) {
		err = tusk.ErrNotFound
	}
	if err != nil {
		return answer{}, err
	}
	return goTo("/archive", "stopping"), rerun.Cancel(v.r.Context(), v.client.Store(), id)
}

type keepingData struct {
	Retention archive.Retention
	Holds     []archive.Hold
	Erasures  []archive.Erasure
	Restores  []archive.Restore
}

// keeping shows what the archive keeps, and for how long.
func keeping(v *visit) (answer, error) {
	ctx, s := v.r.Context(), v.client.Store()
	retention, err := archive.ReadRetention(ctx, s)
	if err != nil {
		return answer{}, err
	}
	holds, err := archive.Holds(ctx, s)
	if err != nil {
		return answer{}, err
	}
	erasures, err := archive.Erasures(ctx, s)
	if err != nil {
		return answer{}, err
	}
	restores, err := archive.Restores(ctx, s)
	if err != nil {
		return answer{}, err
	}
	slices.Reverse(erasures)
	slices.Reverse(restores)
	return answer{page: "archivekeeping", title: "Kept in the archive", section: "archive",
		data: keepingData{retention, holds, erasures, restores}}, nil
}

func keepArchived(v *visit) (answer, error) {
	queue, text := strings.TrimSpace(v.r.PostFormValue("queue")), strings.TrimSpace(v.r.PostFormValue("keep"))
	v.target, v.detail = queue, text
	if queue != "" {
		if err := tusk.ValidateName("queue", queue); err != nil {
			return answer{}, err
		}
	}
	var keep *time.Duration
	switch text {
	case "like others":
	case "forever":
		keep = new(time.Duration)
	default:
		d, err := duration.ParseKept(text)
		if err != nil {
			return answer{}, failure(http.StatusUnprocessableEntity,
				"Say how long: a duration like 365d or 8760h, or forever.")
		}
		keep = &d
	}
	if keep != nil { // removing a setting needs no confirmation
		if ask, err := v.askQueue(queue, "archive", "/archive/keeping"); err != nil || ask.page != "" {
			return ask, err
		}
	}
	err := archive.SetRetention(v.r.Context(), v.client.Store(), queue, keep)
	if errors.Is(err, archive.ErrTooLong) {
		err = failure(http.StatusUnprocessableEntity, "That is too long: 87600h at most, or forever.")
	}
	return goTo("/archive/keeping", "saved"), err
}

func putHold(v *visit) (answer, error) {
	h := archive.Hold{Name: strings.TrimSpace(v.r.PostFormValue("name")),
		Queue:  strings.TrimSpace(v.r.PostFormValue("queue")),
		Tenant: strings.TrimSpace(v.r.PostFormValue("tenant")), Reason: v.r.PostFormValue("reason"), By: v.who.Name,
		At: time.Now().UTC()}
	v.target = h.Name
	err := tusk.ValidateName("hold", h.Name)
	for _, bound := range []struct {
		field string
		into  *time.Time
	}{{"from", &h.From}, {"until", &h.Until}} {
		if err == nil {
			*bound.into, err = query.Instant(bound.field, v.r.PostFormValue(bound.field), time.Now())
		}
	}
	if err != nil {
		return answer{}, err
	}
	if (v.r.PostFormValue("all") != "") != (h.Queue == "" && h.Tenant == "" && h.From.IsZero() && h.Until.IsZero()) {
		return answer{}, failure(http.StatusUnprocessableEntity,
			"Say what is held: a queue, a tenant, a time, or everything.")
	}
	if ask, err := v.askQueue(h.Queue, "archive", "/archive/keeping"); err != nil || ask.page != "" {
		return ask, err
	}
	return goTo("/archive/keeping", "saved"), archive.PutHold(v.r.Context(), v.client.Store(), h, longest/2)
}

func removeHold(v *visit) (answer, error) {
	v.target = v.r.PathValue("name")
	err := archive.RemoveHold(v.r.Context(), v.client.Store(), v.target)
	if errors.Is(err, archive.ErrNoHold) {
		err = tusk.ErrNotFound
	}
	return goTo("/archive/keeping", "removed"), err
}

func eraseTenant(v *visit) (answer, error) {
	tenant := strings.TrimSpace(v.r.PostFormValue("tenant"))
	v.target = tenant
	if err := tusk.ValidateName("tenant", tenant); err != nil {
		return answer{}, err
	}
	if v.r.PostFormValue("confirm") != "yes" || strings.TrimSpace(v.r.PostFormValue("typed")) != tenant {
		gone, err := v.Archive.Erasable(v.r.Context(), v.client.Store(), tenant)
		if err != nil {
			return answer{}, archiveFailure(err)
		}
		return answer{page: "confirm", title: "Erase the tenant?", section: "archive", data: confirmation{
				Question: "Delete " + num(gone.Tasks) + " tasks of " + tenant + " from the archive?", Type: tenant,
				Button: "Delete them for ever",
				Detail: "This cannot be undone. What a hold holds stays. Tasks in the database are another matter: delete " +
					"those first.",
				Action: v.url("archive", "erasures"), Fields: url.Values{"tenant": {tenant}}, Back: v.url("archive", "keeping")}},
			nil
	}
	e, err := archive.RequestErasure(v.r.Context(), v.client.Store(), tusk.NewID(), tenant, v.who.Name)
	v.detail = e.ID.String()
	return goTo("/archive/keeping", "started"), err
}

func pruneArchive(v *visit) (answer, error) {
	gone, err := v.Archive.Prunable(v.r.Context(), v.client.Store())
	if err != nil {
		return answer{}, archiveFailure(err)
	}
	v.target = num(gone.Tasks) + " tasks"
	if v.r.PostFormValue("confirm") != "yes" {
		return answer{page: "confirm", title: "Prune the archive?", section: "archive", data: confirmation{
			Question: "Delete " + num(gone.Tasks) + " tasks that are past the retention of the archive?",
			Detail:   "A server that archives does this by itself, once an hour.", Button: "Prune now",
			Action: v.url("archive", "prune"), Fields: url.Values{}, Back: v.url("archive", "keeping")}}, nil
	}
	return goTo("/archive/keeping", "started"), archive.RequestPrune(v.r.Context(), v.client.Store())
}
