package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/query"
)

// flowRow is a workflow in the list.
type flowRow struct {
	ID     tusk.ID          `json:"id" col:"ID"`
	Kinds  []string         `json:"kinds" col:"KINDS"`
	Tasks  int              `json:"tasks" col:"TASKS"`
	More   bool             `json:"more"` // not all tasks were counted
	Ended  int64            `json:"ended" col:"ENDED"`
	States map[string]int64 `json:"states"`
	Text   string           `json:"-" col:"STATES"`
	Newest instant          `json:"newest" col:"NEWEST"`
	Took   seconds          `json:"took_seconds" col:"TOOK"` // 0 if it has not ended
}

func newWorkflowsListCommand(app *App) *cobra.Command {
	look := 20000
	var kind string
	c := newListCommand(app, "List the workflows that the newest tasks belong to", "no task belongs to a workflow",
		func(ctx context.Context, client *tusk.Client) ([]flowRow, error) {
			var f tusk.Filter
			if kind != "" {
				f.Kinds = []string{kind}
			}
			if err := validNames("", kind); err != nil {
				return nil, err
			}
			flows, looked, more, err := query.Workflows(ctx, client, query.Everything, f, look)
			if err == nil && !more.IsZero() {
				app.note("found among the newest %d tasks", looked)
			}
			return rowsOf(flows, flowOf), err
		})
	c.Flags().StringVar(&kind, "kind", "", "workflows with a task of this kind, by its `name`")
	c.Flags().Var(numberFlag(&look, 1, 100_000_000), "look", "how many of the newest tasks to look through")
	return c
}

func flowOf(f query.WorkflowSum) flowRow {
	row := flowRow{ID: f.ID, Kinds: f.Kinds, Tasks: f.Tasks, More: f.Most, States: f.States, Newest: instant(f.Newest),
		Took: seconds(f.Took())}
	var texts []string
	for _, state := range sortedKeys(f.States) {
		texts = append(texts, fmt.Sprintf("%d %s", f.States[state], state))
	}
	for _, state := range []tusk.State{tusk.StateCompleted, tusk.StateCancelled, tusk.StateDiscarded} {
		row.Ended += f.States[state.String()]
	}
	row.Text = strings.Join(texts, ", ")
	return row
}

// nodeRow is a task of a workflow.
type nodeRow struct {
	Name    string   `json:"name" col:"NAME"`
	ID      tusk.ID  `json:"id" col:"ID"`
	Kind    string   `json:"kind" col:"KIND"`
	State   string   `json:"state" col:"STATE"`
	Attempt int      `json:"attempt" col:"ATTEMPT"`
	Took    seconds  `json:"took_seconds" col:"TOOK"` // its latest attempt
	After   []string `json:"after" col:"AFTER"`
	Reason  string   `json:"reason" col:"REASON"`
}

func newWorkflowsShowCommand(app *App) *cobra.Command {
	var asList bool
	c := &cobra.Command{
		Use:   "show ID",
		Short: "Show the tasks of a workflow as a tree, or with --list as rows, parents first",
		Args:  between(1, 1, "ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return app.withWorkflow(cmd.Context(), args[0], func(client *tusk.Client, id tusk.ID) error {
				w, err := client.Workflow(cmd.Context(), id)
				if err != nil {
					return err
				}
				app.note("%s", progressOf(w))
				rows := nodesOf(w)
				if asList || app.flags.json || app.flags.quiet {
					return printList(app, rows)
				}
				return app.printTree(w, rows)
			})
		},
	}
	c.Flags().BoolVar(&asList, "list", false, "one row for each task, as with --json")
	return c
}

func nodesOf(w *tusk.WorkflowInfo) []nodeRow {
	names := map[tusk.ID]string{}
	for _, t := range w.Tasks {
		names[t.ID] = or(t.Node, t.ID.String())
	}
	rows := make([]nodeRow, len(w.Tasks))
	for i, t := range w.Tasks {
		rows[i] = nodeRow{Name: t.Node, ID: t.ID, Kind: t.Kind, State: t.State.String(), Attempt: t.Attempt,
			Took: seconds(tookOf(t)), After: []string{},
			Reason: namedIn(t.Reason, names)}
		for _, n := range t.Detail.Needs {
			rows[i].After = append(rows[i].After, or(names[n.Task], n.Task.String()))
		}
	}
	return rows
}

// tookOf returns how long the latest attempt of a task took, or has taken so far.
func tookOf(t tusk.TaskInfo) time.Duration {
	switch {
	case t.ClaimedAt.IsZero():
		return 0
	case t.State == tusk.StateRunning:
		return max(time.Since(t.ClaimedAt), 0)
	}
	if attempts := t.Detail.Attempts; len(attempts) > 0 {
		last := attempts[len(attempts)-1]
		return max(last.EndedAt.Sub(last.StartedAt), 0)
	}
	return max(t.FinishedAt.Sub(t.ClaimedAt), 0)
}

var idText = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// namedIn replaces the ids of a workflow's tasks in a text by their names.
func namedIn(text string, names map[tusk.ID]string) string {
	return idText.ReplaceAllStringFunc(text, func(text string) string {
		if id, err := tusk.ParseID(text); err == nil {
			return or(names[id], text)
		}
		return text
	})
}

// printTree draws each task under the first task that it comes after. The others are named next to it.
func (app *App) printTree(w *tusk.WorkflowInfo, rows []nodeRow) error {
	below := map[tusk.ID][]int{}
	known := map[tusk.ID]bool{}
	var roots []int
	for i, t := range w.Tasks {
		known[t.ID] = true
		if needs := t.Detail.Needs; len(needs) > 0 && known[needs[0].Task] {
			below[needs[0].Task] = append(below[needs[0].Task], i)
		} else {
			roots = append(roots, i)
		}
	}
	out := bufio.NewWriter(app.Out)
	for _, i := range roots {
		fmt.Fprintln(out, app.nodeLine(&rows[i], rows[i].After))
		app.printBelow(out, rows, below, i, "")
	}
	return out.Flush()
}

func (app *App) printBelow(out io.Writer, rows []nodeRow, below map[tusk.ID][]int, parent int, indent string) {
	children := below[rows[parent].ID]
	for n, i := range children {
		branch, next := "├─ ", "│  "
		if n == len(children)-1 {
			branch, next = "└─ ", "   "
		}
		fmt.Fprintln(out, indent+branch+app.nodeLine(&rows[i], rows[i].After[1:]))
		app.printBelow(out, rows, below, i, indent+next)
	}
}

const mostNamed = 5

func (app *App) nodeLine(r *nodeRow, after []string) string {
	line := or(r.Name, r.ID.String()) + "  " + r.Kind + "  " + r.State
	if r.Took > 0 {
		line += "  " + inWords(time.Duration(r.Took))
	}
	if r.Attempt > 1 {
		line += fmt.Sprintf("  attempt %d", r.Attempt)
	}
	if len(after) > 0 {
		line += "  after " + strings.Join(after[:min(len(after), mostNamed)], ", ")
		if more := len(after) - mostNamed; more > 0 {
			line += fmt.Sprintf(" and %d more", more)
		}
	}
	if r.Reason != "" {
		line += "  " + r.Reason
	}
	return printable(line)
}

func progressOf(w *tusk.WorkflowInfo) string {
	text := fmt.Sprintf("%d of %s have ended", w.Ended(), count(len(w.Tasks), "task"))
	for _, state := range slices.Sorted(maps.Keys(w.States)) {
		text += fmt.Sprintf(", %d %v", w.States[state], state)
	}
	return text
}

// flowProgress is the progress of a workflow.
type flowProgress struct {
	ID     tusk.ID        `json:"id" col:"ID"`
	Tasks  int            `json:"tasks" col:"TASKS"`
	Ended  int            `json:"ended" col:"ENDED"`
	States map[string]int `json:"states"`
	Text   string         `json:"-" one:"STATES"`
}

func newWorkflowsWatchCommand(app *App) *cobra.Command {
	every := time.Second
	c := &cobra.Command{
		Use:   "watch ID",
		Short: "Wait until all tasks of a workflow have ended, with a progress bar",
		Args:  between(1, 1, "ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return app.withWorkflow(cmd.Context(), args[0], func(client *tusk.Client, id tusk.ID) error {
				w, err := app.watchWorkflow(cmd.Context(), client, id, every)
				if err != nil {
					return err
				}
				row := flowProgress{ID: id, Tasks: len(w.Tasks), Ended: w.Ended(), States: map[string]int{}, Text: progressOf(w)}
				for state, n := range w.States {
					row.States[state.String()] = n
				}
				return printOne(app, row)
			})
		},
	}
	c.Flags().Var(durationFlag(&every), "every", "how often to look; default: 1s")
	return c
}

func (app *App) watchWorkflow(
	ctx context.Context, client *tusk.Client, id tusk.ID, every time.Duration,
) (*tusk.WorkflowInfo, error) {
	var bar *progress
	ended := 0
	for {
		w, err := client.Workflow(ctx, id)
		if err != nil {
			return nil, err
		}
		if bar == nil {
			bar = newProgress(app, int64(len(w.Tasks)))
			defer bar.end()
		}
		bar.add(int64(w.Ended()-ended), w.Ended())
		if ended = w.Ended(); w.Done() {
			return w, nil
		}
		if !sleep(ctx, every) {
			return nil, context.Cause(ctx)
		}
	}
}
