package ui

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/query"
	"github.com/tuskqueue/tusk/store"
)

type workflowsData struct {
	Flows  []query.WorkflowSum
	Looked int
	Next   string // before of the next page
	Later  bool   // not the first page
	Kind   string // only workflows that have such a task
}

func workflows(v *visit) (answer, error) {
	a := answer{page: "workflows", title: "Workflows", section: "workflows"}
	var f tusk.Filter
	var err error
	if text := v.r.URL.Query().Get("before"); text != "" {
		if f.Before, err = tusk.ParseID(text); err != nil {
			return a, err
		}
	}
	d := workflowsData{Later: !f.Before.IsZero(), Kind: strings.TrimSpace(v.r.URL.Query().Get("kind"))}
	if d.Kind != "" {
		if err := query.Text("kind", d.Kind); err != nil {
			return a, err
		}
		f.Kinds = []string{d.Kind}
	}
	var more tusk.ID
	if d.Flows, d.Looked, more, err = query.Workflows(v.r.Context(), v.client, v.who, f,
		query.SurveyBudget); err != nil {
		return a, err
	}
	if !more.IsZero() {
		d.Next = more.String()
	}
	if !d.Later {
		a.watch = v.lists()
	}
	a.data = d
	return a, nil
}

// workflowRows is how many tasks of a workflow a page lists.
const workflowRows = 500

type workflowData struct {
	ID     string
	Tasks  []tusk.TaskInfo
	Rows   []tusk.TaskInfo // the listed tasks
	State  string          // state of the listed tasks; empty: any
	First  int             // number of the first listed task, counted from 1
	Of     int             // number of tasks in that state
	Names  map[tusk.ID]string
	Counts []stateCount
	Graph  *graph // nil if there are too many tasks to draw
	Cancel bool   // some task has not finished
	Retry  bool   // some task was discarded or cancelled
	Done   int    // percent
	Failed bool   // some task was discarded or cancelled, and no other is unfinished
	Times  timeline
}

// Last returns the number of the last listed task, or 0 if none is listed.
func (d workflowData) Last() int { return d.First + len(d.Rows) - 1 }

// Next returns the number of the first task on the next page, or 0 if this is the last page.
func (d workflowData) Next() int {
	if d.Last() >= d.Of {
		return 0
	}
	return d.Last() + 1
}

// Previous returns the number of the first task on the previous page, or 0 if this is the first page.
func (d workflowData) Previous() int {
	if d.First == 1 {
		return 0
	}
	return max(1, d.First-workflowRows)
}

// list selects the tasks to list: those in a state, or all, starting at a number.
func (d *workflowData) list(asked url.Values) error {
	all := d.Tasks
	if d.State = asked.Get("state"); d.State != "" {
		state, err := store.ParseState(d.State)
		if err != nil {
			return &query.Error{Field: "state", Code: "invalid_state_name",
				Text: "want one of " + strings.Join(stateNames, ", ")}
		}
		all = slices.DeleteFunc(slices.Clone(all), func(t tusk.TaskInfo) bool { return t.State != state })
	}
	d.First, d.Of = 1, len(all)
	if text := asked.Get("from"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return &query.Error{Field: "from", Code: "out_of_range", Text: "is no number of a task: want 1 or more"}
		}
		d.First = min(n, max(d.Of, 1))
	}
	d.Rows = all[d.First-1 : min(d.Of, d.First-1+workflowRows)]
	return nil
}

// Bars returns when a task waited and ran.
func (d workflowData) Bars(t tusk.TaskInfo) []timeSpan { return d.Times.bars(&t) }

// Finished reports whether a task has finished, so that it can be run again.
func (workflowData) Finished(t tusk.TaskInfo) bool { return t.State.Finished() }

type stateCount struct {
	State string
	Tasks int
}

func workflow(v *visit) (answer, error) {
	if part, is := v.partOfID(); is {
		id, err := query.FindWorkflow(v.r.Context(), v.client, v.who, part)
		return goTo("/workflows/" + id.String()), err
	}
	w, err := v.findWorkflow()
	if err != nil {
		return answer{}, err
	}
	d := workflowData{ID: w.ID.String(), Tasks: w.Tasks, Names: map[tusk.ID]string{}}
	finished := 0
	for _, state := range store.States() {
		n := w.States[state]
		if n == 0 {
			continue
		}
		d.Counts = append(d.Counts, stateCount{state.String(), n})
		d.Cancel = d.Cancel || !state.Finished()
		d.Retry = d.Retry || state == store.Discarded || state == store.Cancelled
		if state.Finished() {
			finished += n
		}
	}
	d.Done, d.Failed = 100*finished/len(w.Tasks), d.Retry && !d.Cancel
	d.Times = timelineOf(w.Tasks, time.Now())
	for _, t := range w.Tasks {
		if d.Names[t.ID] = t.Node; t.Node == "" {
			d.Names[t.ID] = t.Kind
		}
	}
	if len(w.Tasks) <= MaxDrawn {
		d.Graph = v.graphOf(w.Tasks)
	}
	if err := d.list(v.r.URL.Query()); err != nil {
		return answer{}, err
	}
	return answer{page: "workflow", title: "Workflow", section: "workflows", watch: v.lists(), data: d}, nil
}

// findWorkflow returns the workflow in the path, without the tasks that the visitor may not see.
func (v *visit) findWorkflow() (*tusk.WorkflowInfo, error) {
	id, err := tusk.ParseID(v.r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	v.target = id.String()
	w, err := v.client.Workflow(v.r.Context(), id)
	if err != nil {
		return nil, err
	}
	seen := query.Part(w, v.who.Sees)
	if len(seen.Tasks) == 0 {
		return nil, tusk.ErrNotFound
	}
	return seen, nil
}

// graphOf draws the order of the tasks. A pipeline's run has no needs: its stages follow each other.
func (v *visit) graphOf(tasks []tusk.TaskInfo) *graph {
	nodes, byID, needs := make([]*node, len(tasks)), map[tusk.ID]*node{}, 0
	for i, t := range tasks {
		title := t.Node
		if title == "" {
			title = t.Kind
		}
		state := t.State.String()
		nodes[i] = &node{Title: title, Sub: state, Class: state, To: v.url("tasks", t.ID)}
		if t.Node != "" && t.Node != t.Kind {
			nodes[i].Sub = state + " · " + t.Kind
		}
		byID[t.ID] = nodes[i]
	}
	for i, t := range tasks {
		for _, n := range t.Detail.Needs {
			if parent := byID[n.Task]; parent != nil {
				nodes[i].after = append(nodes[i].after, parent)
			}
			needs++
		}
	}
	if needs == 0 && tasks[0].Workflow.IsZero() {
		for i := 1; i < len(nodes); i++ {
			nodes[i].after = []*node{nodes[i-1]}
		}
	}
	return draw(nodes)
}

func editWorkflow(v *visit) (answer, error) {
	seen, err := v.findWorkflow()
	if err != nil {
		return answer{}, err
	}
	if w, err := v.client.Workflow(v.r.Context(), seen.ID); err != nil {
		return answer{}, err
	} else if len(w.Tasks) > len(seen.Tasks) {
		return answer{}, failure(http.StatusForbidden, "Some tasks of this workflow are beyond your bounds.")
	}
	to := "/workflows/" + v.target
	v.detail = v.r.PathValue("action")
	switch v.detail {
	case "from":
		return v.retryFrom(seen)
	case "retry":
		_, err := v.client.RetryWorkflow(v.r.Context(), seen.ID)
		return goTo(to, "retriedall"), err
	case "cancel":
		if v.r.PostFormValue("confirm") != "yes" {
			return answer{page: "confirm", title: "Cancel the workflow?", section: "workflows", data: confirmation{
					Question: "Cancel what is left of this workflow?",
					Detail: fmt.Sprintf("It has %d tasks. Those that have finished stay as they are; running ones are asked to stop.",
						len(seen.Tasks)),
					Button: "Cancel its tasks", Action: v.url("workflows", v.target, "cancel"), Back: v.url("workflows", v.target)}},
				nil
		}
		_, err := v.client.CancelWorkflow(v.r.Context(), seen.ID, "cancelled by "+v.who.Name+" with its workflow")
		return goTo(to, "cancelledall"), err
	}
	return answer{}, failure(http.StatusNotFound, "There is no such action.")
}

// retryFrom runs a task of a workflow, and all tasks after it, again, after a confirmation.
func (v *visit) retryFrom(w *tusk.WorkflowInfo) (answer, error) {
	first := w.Node(v.r.PostFormValue("node"))
	if first == nil {
		return answer{}, tusk.ErrNotFound
	}
	to := "/workflows/" + v.target
	if v.r.PostFormValue("confirm") != "yes" {
		again := 0
		after := map[tusk.ID]bool{first.ID: true}
		for _, t := range w.Tasks { // parents come first
			for _, n := range t.Detail.Needs {
				after[t.ID] = after[t.ID] || after[n.Task]
			}
			if after[t.ID] && t.State.Finished() {
				again++
			}
		}
		name := cmp.Or(first.Node, first.Kind)
		return answer{page: "confirm", title: "Run it again?", section: "workflows", data: confirmation{
			Question: "Run " + name + " and what comes after it again?",
			Detail: fmt.Sprintf(
				"That is %s in all, those that were completed as well, each once those before it have ended again.",
				counted(again, "task")),
			Button: "Run again", Action: v.url("workflows", v.target, "from"), Fields: url.Values{"node": {first.ID.String()}},
			Back: v.url("workflows", v.target)}}, nil
	}
	_, err := v.client.RetryWorkflowFrom(v.r.Context(), w.ID, first.ID.String())
	return goTo(to, "again"), err
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return num(n) + " " + what + "s"
}

type stageRow struct {
	tusk.StageStats
	Counts       map[string]int64
	Hour         int64  // attempts of the last hour
	WaitP95, P95 string // of the last hour
}

type pipelineData struct {
	tusk.PipelineInfo
	Stages []stageRow
	Graph  *graph
}

func pipelines(v *visit) (answer, error) {
	a := answer{page: "pipelines", title: "Pipelines", section: "pipelines", watch: v.lists(), data: []pipelineData(nil)}
	all, err := v.client.Pipelines(v.r.Context())
	if err != nil {
		return a, err
	}
	every, err := v.client.AllPipelineStats(v.r.Context(), time.Now().Add(-time.Hour))
	if err != nil {
		return a, err
	}
	var data []pipelineData
	for _, p := range all {
		stats := every[p.Name] // zero if it was removed meanwhile
		d := pipelineData{PipelineInfo: p}
		var nodes []*node
		for i := range stats {
			if !v.who.SeesQueue(stats[i].Queue) {
				continue
			}
			row := stageRowOf(&stats[i])
			d.Stages = append(d.Stages, row)
			nodes = append(nodes, v.stageNode(row, nodes))
		}
		if len(nodes) > 0 {
			d.Graph = draw(nodes)
			data = append(data, d)
		}
	}
	a.data = data
	return a, nil
}

func stageRowOf(s *tusk.StageStats) stageRow {
	r := stageRow{StageStats: *s, Counts: map[string]int64{}, Hour: s.Ran.Count, WaitP95: dur(s.Waited.Quantile(0.95)),
		P95: dur(s.Ran.Quantile(0.95))}
	for _, name := range stateNames {
		r.Counts[name] = 0
	}
	for state, n := range s.Tasks {
		r.Counts[state.String()] = n
	}
	return r
}

func (v *visit) stageNode(r stageRow, before []*node) *node {
	waiting := r.Counts["available"] + r.Counts["pending"] + r.Counts["retryable"]
	n := &node{Title: r.Name, Sub: fmt.Sprintf("%s waiting, %s running", num(waiting), num(r.Counts["running"])),
		To: v.url("tasks") + "?kind=" + r.Kind, Class: "completed"}
	switch {
	case r.Stuck != "":
		n.Class = "discarded"
	case r.Counts["retryable"] > 0:
		n.Class = "retryable"
	case r.Counts["running"] > 0:
		n.Class = "running"
	case r.Counts["available"] > 0:
		n.Class = "available"
	}
	if len(before) > 0 {
		n.after = before[len(before)-1:]
	}
	return n
}

func removePipeline(v *visit) (answer, error) {
	name := v.r.PathValue("name")
	v.target = short(name)
	if v.r.PostFormValue("confirm") != "yes" {
		return answer{page: "confirm", title: "Forget the pipeline?", section: "pipelines", data: confirmation{
			Question: "Forget the pipeline " + short(name) + "?",
			Detail:   "Its tasks stay. A worker that still has it tells of it again at its next start.", Button: "Forget",
			Action: v.url("pipelines", name, "remove"), Back: v.url("pipelines")}}, nil
	}
	return goTo("/pipelines", "removed"), v.client.RemovePipeline(v.r.Context(), name)
}
