package server

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/archive"
	"github.com/tuskqueue/tusk/archive/rerun"
	"github.com/tuskqueue/tusk/server/query"
)

// searchTime is how long a page of an archive search may read.
const searchTime = 3 * time.Second

// ArchiveStatus is the status of the archive.
type ArchiveStatus struct {
	Status     string             `json:"status" enum:"ok,behind,failing,away" doc:"behind: nothing has been archived for too long; away: the place is unreachable"`
	Failing    string             `json:"failing,omitempty" doc:"why it does not continue; tasks stay in the database"`
	Succeeded  time.Time          `json:"succeeded_at,omitzero" doc:"when everything was last archived"`
	Tasks      int64              `json:"tasks" doc:"moved since the database was created"`
	Bytes      int64              `json:"bytes" doc:"that they took in the archive"`
	KeepAll    Duration           `json:"keep_all,omitempty" doc:"default retention in the archive; absent: for ever"`
	KeepQueues map[string]Keeping `json:"keep_queues,omitempty" doc:"retention by queue, where it is not the default"`
}

// shelf returns the archive that the server reads.
func (c *call) shelf() (*archive.Archive, error) {
	if c.config.Archive == nil {
		return nil, problem(http.StatusNotFound, "no_archive", "this server reads no archive: start it with --archive")
	}
	return c.config.Archive, nil
}

func getArchive(c *call, _ struct{}) (ArchiveStatus, error) {
	health, err := c.archiveHealth(c.r.Context())
	if err != nil {
		return ArchiveStatus{}, err
	}
	keep, err := archive.ReadRetention(c.r.Context(), c.client.Store())
	v := ArchiveStatus{Status: string(health.State), Failing: health.Failing, Succeeded: utc(health.Succeeded),
		Tasks: health.Tasks, Bytes: health.Bytes,
		KeepAll: Duration(keep.All), KeepQueues: map[string]Keeping{}}
	for queue, d := range keep.Queues {
		if !c.who.SeesQueue(queue) {
			continue
		}
		v.KeepQueues[queue] = keepingOf(d)
	}
	return v, err
}

// keepingOf returns how long an archive keeps tasks, as shown by the API.
func keepingOf(d time.Duration) Keeping {
	if d == 0 {
		return Keeping(tusk.Forever)
	}
	return Keeping(d)
}

type searchInput struct {
	query.Archived
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	Cursor string `query:"cursor" rule:"place" doc:"next of the previous page"`
}

// ArchivedPage is one page of tasks of the archive.
type ArchivedPage struct {
	Tasks  []Task `json:"tasks" doc:"the latest day first, in no order within a day"`
	Next   string `json:"next,omitempty" doc:"the cursor of the next page; absent on the last page"`
	Looked int64  `json:"looked_at,omitempty" doc:"tasks searched, absent with restricted access; a page may end early"`
	Sealed int64  `json:"encrypted,omitempty" doc:"search in args: tasks that match otherwise, but are encrypted"`
	Files  int    `json:"files,omitempty" doc:"files searched; absent for callers with restricted access"`
	Of     int    `json:"of_files,omitempty" doc:"files that may have tasks that match"`
}

func searchArchive(c *call, in searchInput) (ArchivedPage, error) {
	page := ArchivedPage{Tasks: []Task{}}
	shelf, err := c.shelf()
	if err != nil {
		return page, err
	}
	q, err := c.archiveQuery(in.Archived)
	if err != nil {
		return page, err
	}
	cursor, err := readPlace(in.Archived, in.Cursor)
	if err != nil {
		return page, err
	}
	found, err := shelf.Search(c.r.Context(), q, cursor, in.Limit, searchTime, nil)
	if err != nil {
		return page, archiveProblem(err)
	}
	for _, t := range found.Tasks {
		page.Tasks = append(page.Tasks, c.view(c.client.Describe(t)))
	}
	page.Looked, page.Sealed, page.Files, page.Of = found.Looked, found.Sealed, found.Files, found.Of
	if found.Next != "" {
		page.Next = newPlace(in.Archived, found.Next)
	}
	return page, nil
}

// archiveQuery returns a query within the caller's bounds.
func (c *call) archiveQuery(in query.Archived) (archive.Query, error) {
	q, err := in.Query(c.config.Mask)
	q.Sees = c.who.Bounds()
	return q, err
}

func newPlace(q query.Archived, place string) string {
	sum := sha256.Sum256([]byte(q.Values().Encode()))
	return base64.RawURLEncoding.EncodeToString(append(sum[:cursorSum], place...))
}

func readPlace(q query.Archived, text string) (string, error) {
	if text == "" {
		return "", nil
	}
	sum := sha256.Sum256([]byte(q.Values().Encode()))
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(raw) < cursorSum || string(raw[:cursorSum]) != string(sum[:cursorSum]) {
		return "", archiveProblem(archive.ErrCursor)
	}
	return string(raw[cursorSum:]), nil
}

// archiveProblem turns an error of the archive into a problem.
func archiveProblem(err error) error {
	switch {
	case errors.Is(err, archive.ErrNotFound):
		return problem(http.StatusNotFound, "not_found", "the task is not in the archive")
	case errors.Is(err, archive.ErrCursor):
		return fieldProblem(http.StatusUnprocessableEntity, "invalid_cursor", "cursor",
			"is none of this query: leave it out to begin anew")
	case errors.Is(err, archive.ErrMoved):
		return problem(http.StatusConflict, "archive_changed", "%v", err)
	case errors.Is(err, archive.ErrTooLong):
		return fieldProblem(http.StatusUnprocessableEntity, "out_of_range", "keep", "%v", err)
	case errors.Is(err, archive.ErrNoHold):
		return problem(http.StatusNotFound, "not_found", "%v", err)
	case errors.Is(err, archive.ErrStillChanging):
		return problem(http.StatusConflict, "archive_changing", "%v", err)
	}
	return err
}

// archivedTask returns a task of the archive that the caller may see. An object store may be slow, so the call gives
// back its place to work: others need it for the database.
func (c *call) archivedTask(id tusk.ID) (*tusk.TaskInfo, error) {
	shelf, err := c.shelf()
	if err != nil {
		return nil, err
	}
	c.rest()
	t, err := shelf.Find(c.r.Context(), id)
	if err == nil && !c.who.Sees(t.Queue, t.Tenant) {
		err = archive.ErrNotFound
	}
	if err != nil {
		return nil, archiveProblem(err)
	}
	info := c.client.Describe(t)
	return &info, nil
}

// fromArchive gets a task that the database does not have. The error is missing if the archive does not have it either,
// or if the caller may not see it.
func (c *call) fromArchive(id tusk.ID, missing error) (*tusk.TaskInfo, error) {
	t, err := c.archivedTask(id)
	if p := (*Problem)(nil); errors.As(err, &p) && p.Code == "not_found" {
		return nil, missing
	}
	return t, err
}

func getArchivedTask(c *call, in byID) (TaskDetail, error) {
	t, err := c.archivedTask(in.ID)
	if err != nil {
		return TaskDetail{}, err
	}
	v := c.detailView(*t)
	v.Archived = true
	return v, nil
}

func rerunArchivedTask(c *call, in byID) (EnqueuedTask, error) {
	c.target = in.ID.String()
	if _, err := c.archivedTask(in.ID); err != nil {
		return EnqueuedTask{}, err
	}
	e, err := c.carrier().One(c.r.Context(), in.ID, c.who.Sees)
	if err != nil {
		return EnqueuedTask{}, archiveProblem(err)
	}
	c.detail = "as " + e.ID.String()
	result := results([]tusk.Enqueued{e})[0]
	if result.Duplicate {
		c.status = http.StatusOK
	}
	return result, nil
}

// carrier returns the part that runs archived tasks again.
func (s *Server) carrier() *rerun.Carrier {
	return &rerun.Carrier{Client: s.client, Archive: s.config.Archive, Log: s.log}
}

type rerunInput struct {
	Body struct {
		Filter query.Archived `json:"filter" doc:"which tasks; for all tasks it is empty, and all is true"`
		All    bool           `json:"all,omitempty" doc:"confirms an empty filter: every archived task"`
		DryRun bool           `json:"dry_run,omitempty" doc:"only count the matching tasks"`
	}
}

// Rerun runs all archived tasks that match a filter again.
type Rerun struct {
	ID              string         `json:"id,omitempty" doc:"absent: it was a dry run"`
	State           string         `json:"state" enum:"running,done,cancelled,failed,counted" doc:"counted: a dry run"`
	By              string         `json:"by,omitempty"`
	Filter          query.Archived `json:"filter"`
	Expected        int64          `json:"expected" doc:"how many tasks matched when it began, as far as counted"`
	More            bool           `json:"more,omitempty" doc:"there are more: counting took too long"`
	Enqueued        int64          `json:"enqueued" doc:"new tasks"`
	KeyTaken        int64          `json:"key_taken" doc:"tasks whose key an unfinished task has"`
	Refused         int64          `json:"refused" doc:"tasks that are invalid, or whose key for args the server lacks"`
	Sealed          int64          `json:"encrypted,omitempty" doc:"search in args: tasks skipped as encrypted"`
	Left            []RerunLeft    `json:"left,omitempty" doc:"the first tasks that were skipped, at most 20"`
	Files           int            `json:"files,omitempty" doc:"files searched; absent for callers with restricted access"`
	Of              int            `json:"of_files"`
	StartedAt       time.Time      `json:"started_at,omitzero"`
	FinishedAt      time.Time      `json:"finished_at,omitzero"`
	CancelRequested bool           `json:"cancel_requested,omitempty"`
	Error           string         `json:"error,omitempty"`
}

// RerunLeft is a task that was not run again.
type RerunLeft struct {
	ID  string `json:"id"`
	Why string `json:"why"`
}

// RerunList is a list of reruns.
type RerunList struct {
	Reruns []Rerun `json:"reruns"`
}

func viewRerun(r rerun.Rerun) Rerun {
	v := Rerun{ID: r.ID.String(), State: string(r.State), By: r.By, Filter: query.ArchivedOf(r.Query),
		Expected: r.Expected, Enqueued: r.Enqueued,
		KeyTaken: r.KeyTaken, Refused: r.Refused, Files: r.Files, Of: r.Of, StartedAt: utc(r.StartedAt),
		FinishedAt:      utc(r.FinishedAt),
		CancelRequested: r.CancelRequested, Error: r.Error}
	for _, l := range r.Left {
		v.Left = append(v.Left, RerunLeft{l.ID.String(), l.Why})
	}
	return v
}

// countTime is how long the tasks of the archive may be counted before a rerun.
const countTime = 10 * time.Second

func startRerun(c *call, in rerunInput) (Rerun, error) {
	if _, err := c.shelf(); err != nil {
		return Rerun{}, err
	}
	q, err := in.Body.Filter.Query(c.config.Mask)
	if err != nil {
		return Rerun{}, err
	}
	if in.Body.All != in.Body.Filter.IsZero() {
		return Rerun{}, fieldProblem(http.StatusUnprocessableEntity, "all_or_filter", "all",
			"say which tasks in the filter, or that all of them are meant: an empty filter with \"all\": true")
	}
	c.detail = "where " + in.Body.Filter.Values().Encode()
	r := rerun.Rerun{Query: q, Owner: c.who.ID, By: c.who.Name, Via: c.who.Via, Queues: c.who.Queues,
		Tenants: c.who.Tenants}
	n, err := c.carrier().Count(c.r.Context(), r, countTime, nil)
	if err != nil {
		return Rerun{}, archiveProblem(err)
	}
	if in.Body.DryRun {
		c.detail = "dry run " + c.detail
		return Rerun{State: "counted", Filter: in.Body.Filter, Expected: n.Tasks, More: n.More, Sealed: n.Sealed}, nil
	}
	if !n.More {
		r.Expected = n.Tasks
	}
	begun, err := rerun.Start(c.r.Context(), c.client.Store(), r)
	if err != nil {
		return Rerun{}, err
	}
	c.target = begun.ID.String()
	return viewRerun(begun), nil
}

func listReruns(c *call, _ struct{}) (RerunList, error) {
	list := RerunList{Reruns: []Rerun{}}
	all, err := rerun.List(c.r.Context(), c.client.Store())
	for _, r := range all {
		if c.who.Knows(r.Owner) {
			list.Reruns = append(list.Reruns, viewRerun(r))
		}
	}
	return list, err
}

func getRerun(c *call, in byOperation) (Rerun, error) {
	c.target = in.ID.String()
	r, err := rerun.Get(c.r.Context(), c.client.Store(), in.ID)
	if err == nil && !c.who.Knows(r.Owner) {
		err = tusk.ErrNotFound
	}
	return viewRerun(r), err
}

func cancelRerun(c *call, in byOperation) (Rerun, error) {
	if _, err := getRerun(c, in); err != nil {
		return Rerun{}, err
	}
	if err := rerun.Cancel(c.r.Context(), c.client.Store(), in.ID); err != nil {
		return Rerun{}, err
	}
	return getRerun(c, in)
}
