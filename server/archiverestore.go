package server

import (
	"errors"
	"net/http"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/archive"
	"github.com/tuskqueue/tusk/server/query"
)

type restoreInput struct {
	Body struct {
		IDs    []tusk.ID      `json:"ids,omitempty" maxItems:"1000" doc:"which tasks; if absent, the filter decides"`
		Filter query.Archived `json:"filter,omitzero" doc:"which tasks; for all tasks it is empty, and all is true"`
		All    bool           `json:"all,omitempty" doc:"confirms an empty filter: every archived task"`
		DryRun bool           `json:"dry_run,omitempty" doc:"only count the matching tasks"`
	}
}

// Restore puts finished tasks of the archive back into the database.
type Restore struct {
	ID              string         `json:"id,omitempty" doc:"absent: it was a dry run"`
	State           string         `json:"state" enum:"waiting,done,cancelled,counted" doc:"counted: it was a dry run"`
	By              string         `json:"by,omitempty"`
	Filter          query.Archived `json:"filter"`
	Expected        int64          `json:"expected" doc:"how many tasks were named, or matched as far as counted"`
	More            bool           `json:"more,omitempty" doc:"there are more: counting took too long"`
	Sealed          int64          `json:"encrypted,omitempty" doc:"dry run by args: tasks skipped as encrypted"`
	Restored        int64          `json:"restored" doc:"tasks that are in the database again"`
	Skipped         int64          `json:"skipped" doc:"tasks in the database, under a hold, or not in the archive"`
	Left            []RerunLeft    `json:"left,omitempty" doc:"the first tasks that were skipped, at most 20"`
	At              time.Time      `json:"at,omitzero" doc:"when it was requested"`
	Done            time.Time      `json:"done_at,omitzero"`
	CancelRequested bool           `json:"cancel_requested,omitempty"`
	Error           string         `json:"error,omitempty" doc:"why it does not continue; it is retried"`
}

// RestoreList is a list of restores.
type RestoreList struct {
	Restores []Restore `json:"restores"`
}

func viewRestore(t archive.Restore) Restore {
	v := Restore{ID: t.ID.String(), State: string(t.State), By: t.By, Filter: query.ArchivedOf(t.Query),
		Expected: t.Expected, Restored: t.Restored,
		Skipped: t.Skipped, At: utc(t.At), Done: utc(t.Done), CancelRequested: t.CancelRequested, Error: t.Error}
	for _, l := range t.Left {
		v.Left = append(v.Left, RerunLeft{l.ID.String(), l.Why})
	}
	return v
}

// startRestore requests a restore, which an archiving process carries out within seconds.
func startRestore(c *call, in restoreInput) (Restore, error) {
	shelf, err := c.shelf()
	if err != nil {
		return Restore{}, err
	}
	if err := archive.CanRestore(c.client.Store()); err != nil {
		return Restore{}, problem(http.StatusUnprocessableEntity, "unsupported", "%v", err)
	}
	if choices := len(in.Body.IDs) > 0; choices == (in.Body.All || !in.Body.Filter.IsZero()) || in.Body.All &&
		!in.Body.Filter.IsZero() {
		return Restore{}, fieldProblem(http.StatusUnprocessableEntity, "all_or_filter", "all",
			"say which tasks by ids or in the filter, or that all of them are meant: an empty filter with \"all\": true")
	}
	q, err := c.archiveQuery(in.Body.Filter)
	if err != nil {
		return Restore{}, err
	}
	n := archive.Counted{Tasks: int64(len(in.Body.IDs))}
	if len(in.Body.IDs) == 0 {
		if n, err = shelf.Count(c.r.Context(), q, countTime, nil); err != nil {
			return Restore{}, archiveProblem(err)
		}
	}
	c.detail = plural(int(n.Tasks), "task")
	if in.Body.DryRun {
		c.detail = "dry run, " + c.detail
		return Restore{State: "counted", Filter: in.Body.Filter, Expected: n.Tasks, More: n.More, Sealed: n.Sealed}, nil
	}
	t := archive.Restore{ID: tusk.NewID(), IDs: in.Body.IDs, Query: q, By: c.who.Name, Via: c.who.Via}
	if !n.More {
		t.Expected = n.Tasks
	}
	if t, err = archive.RequestRestore(c.r.Context(), c.client.Store(), t); err != nil {
		return Restore{}, err
	}
	c.target = t.ID.String()
	return viewRestore(t), nil
}

func listRestores(c *call, _ struct{}) (RestoreList, error) {
	list := RestoreList{Restores: []Restore{}}
	all, err := archive.Restores(c.r.Context(), c.client.Store())
	for _, t := range all {
		list.Restores = append(list.Restores, viewRestore(t))
	}
	return list, err
}

func getRestore(c *call, in byOperation) (Restore, error) {
	c.target = in.ID.String()
	t, err := archive.ReadRestore(c.r.Context(), c.client.Store(), in.ID)
	if errors.Is(err, archive.ErrNoSuchRestore) {
		err = tusk.ErrNotFound
	}
	return viewRestore(t), err
}

func cancelRestore(c *call, in byOperation) (Restore, error) {
	if _, err := getRestore(c, in); err != nil {
		return Restore{}, err
	}
	if err := archive.CancelRestore(c.r.Context(), c.client.Store(), in.ID); err != nil {
		return Restore{}, err
	}
	return getRestore(c, in)
}
