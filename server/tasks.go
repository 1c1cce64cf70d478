package server

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/server/query"
	"github.com/tuskqueue/tusk/store"
)

type byID struct {
	ID tusk.ID `path:"id" doc:"of the task"`
}

type listInput struct {
	query.Tasks
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	Cursor string `query:"cursor" rule:"cursor" doc:"next of the previous page"`
}

// TaskPage is one page of tasks.
type TaskPage struct {
	Tasks  []Task `json:"tasks"`
	Next   string `json:"next,omitempty" doc:"the cursor of the next page; absent on the last page"`
	Looked int    `json:"looked_at,omitempty" doc:"for a search in args: the number of tasks searched; a page ends early at 5,000, and the next one continues"`
}

func listTasks(c *call, in listInput) (TaskPage, error) {
	page := TaskPage{Tasks: []Task{}}
	f, err := pageFilter(in)
	if err != nil {
		return page, err
	}
	found, err := in.Find(c.r.Context(), c.client, c.who, f, c.config.Mask.JSON)
	if err != nil {
		return page, err
	}
	for _, t := range found.Tasks {
		page.Tasks = append(page.Tasks, c.view(t))
	}
	if page.Looked = found.Looked; !found.More.IsZero() {
		page.Next = newCursor(in.Tasks, found.More)
	}
	return page, nil
}

func pageFilter(in listInput) (tusk.Filter, error) {
	f, err := in.Filter()
	if err != nil {
		return f, err
	}
	f.Limit = in.Limit
	f.Before, err = readCursor(in.Tasks, in.Cursor)
	return f, err
}

// visible returns a task that the caller may see. Others do not exist for the caller.
func (c *call) visible(id tusk.ID) (*tusk.TaskInfo, error) {
	c.target = id.String()
	t, err := c.client.Get(c.r.Context(), id)
	if err != nil {
		return nil, err
	}
	if !c.who.Sees(t.Queue, t.Tenant) {
		return nil, problem(http.StatusNotFound, "not_found", "task %s: not found", id)
	}
	return t, nil
}

// visibleIDs returns which of the tasks the caller may see.
func (c *call) visibleIDs(ids []tusk.ID) (map[tusk.ID]bool, error) {
	tasks, err := c.client.List(c.r.Context(), tusk.Filter{IDs: ids, Limit: max(len(ids), 1), NoArgs: true})
	if err != nil {
		return nil, err
	}
	seen := make(map[tusk.ID]bool, len(tasks))
	for _, t := range tasks {
		if c.who.Sees(t.Queue, t.Tenant) {
			seen[t.ID] = true
		}
	}
	return seen, nil
}

// ExportLimit is the largest number of tasks in one export.
const ExportLimit = 100000

type exportInput struct {
	query.Tasks
	Cursor string `query:"cursor" rule:"cursor" doc:"trailer Tusk-Next of an export that stopped at its limit"`
	Format string `query:"format" enum:"csv,jsonl" default:"jsonl"`
}

// exportTasks streams tasks page by page. Cells that a spreadsheet would treat as a formula are marked as text.
func exportTasks(c *call, in exportInput) (nothing, error) {
	f, err := in.Filter()
	if err != nil {
		return nothing{}, err
	}
	f.Limit = store.MaxPage
	if f.Before, err = readCursor(in.Tasks, in.Cursor); err != nil {
		return nothing{}, err
	}
	var text bytes.Buffer // one page: no place to work is held while it is sent
	write := jsonLines(&text)
	find := func() (page query.Page, err error) {
		if err = c.take(answerCost); err != nil {
			return page, err
		}
		if err = c.work(); err != nil {
			return page, err
		}
		defer func() { c.rest(); c.keep(text.Len()) }()
		text.Reset()
		if page, err = in.Find(c.r.Context(), c.client, c.who, f, c.config.Mask.JSON); err != nil {
			return page, err
		}
		for _, t := range page.Tasks {
			if err := write(c.view(t)); err != nil {
				return page, err
			}
		}
		return page, nil
	}
	h, kind, name := c.w.Header(), "application/jsonl", "tasks.jsonl"
	if in.Format == "csv" {
		kind, name = "text/csv; charset=utf-8", "tasks.csv"
		write = csvLines(&text, in.Cursor == "")
	}
	page, err := find()
	if err != nil {
		return nothing{}, err
	}
	h.Set("Content-Type", kind)
	h.Set("Content-Disposition", `attachment; filename="`+name+`"`)
	control := http.NewResponseController(c.w)
	_ = control.SetReadDeadline(time.Time{})
	for n := 0; ; {
		if err := c.send(text.Bytes()); err != nil || page.More.IsZero() {
			break // the client has gone, or has everything
		}
		if n += max(len(page.Tasks), page.Read); n >= c.exportLimit {
			h.Set(http.TrailerPrefix+"Tusk-Next", newCursor(in.Tasks, page.More))
			break
		}
		f.Before = page.More
		if page, err = find(); err != nil {
			c.log.Warn("export: cut short", "request", c.id, "error", err)
			panic(http.ErrAbortHandler) // after the header, this is the only way to report an error
		}
	}
	return nothing{}, nil
}

func jsonLines(out io.Writer) func(Task) error {
	e := json.NewEncoder(out)
	return func(t Task) error { return e.Encode(t) }
}

// csvLines writes the names of the columns first, unless the lines are the rest of an export.
func csvLines(out io.Writer, named bool) func(Task) error {
	w := csv.NewWriter(out)
	if named {
		_ = w.Write([]string{"id", "state", "kind", "queue", "tenant", "priority", "attempt", "max_attempts", "key", "tags",
			"enqueued_at", "run_at", "claimed_at", "finished_at", "reason", "args"})
	}
	return func(t Task) error {
		err := w.Write([]string{t.ID, t.State, t.Kind, t.Queue, t.Tenant, strconv.Itoa(int(t.Priority)),
			strconv.Itoa(t.Attempt), strconv.Itoa(t.MaxAttempts), cell(t.Key), cell(strings.Join(t.Tags, " ")),
			stamp(t.EnqueuedAt), stamp(t.RunAt), stamp(t.ClaimedAt), stamp(t.FinishedAt), cell(t.Reason), cell(string(t.Args))})
		w.Flush()
		return err
	}
}

func cell(text string) string {
	if text != "" && strings.ContainsAny(text[:1], "=+-@\t\r") {
		return "'" + text
	}
	return text
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format(time.RFC3339Nano)
}

func whoAmI(c *call, _ struct{}) (access.Identity, error) { return c.who, nil }
