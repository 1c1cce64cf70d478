package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// taskView is everything known about one task.
type taskView struct {
	taskRow
	CancelRequested bool            `json:"cancel_requested"`
	Changed         *changeRow      `json:"changed"`     // the last change while it waited
	Needs           int             `json:"needs"`       // needed tasks, or children that it waits for
	NeedsEnded      int             `json:"needs_ended"` // how many of them have ended
	Progress        *store.Progress `json:"progress"`
	Attempts        []attemptRow    `json:"attempts"`
	Logs            []logRow        `json:"logs"`
	Output          json.RawMessage `json:"output"`
}

// changeRow is when and how a task was last changed.
type changeRow struct {
	At  instant   `json:"at"`
	How store.How `json:"how"`
}

type attemptRow struct {
	Number      int        `json:"number" col:"ATTEMPT"`
	Outcome     tusk.State `json:"outcome" col:"OUTCOME"`
	StartedAt   instant    `json:"started_at" col:"STARTED"`
	EndedAt     instant    `json:"ended_at"`
	Took        seconds    `json:"took_seconds" col:"TOOK"`
	Worker      tusk.ID    `json:"worker"`
	Fingerprint string     `json:"fingerprint" col:"FINGERPRINT"`
	Error       string     `json:"error" col:"ERROR"`
	Trace       string     `json:"trace"`
}

type logRow struct {
	At      moment `json:"at" col:"AT"`
	Attempt int    `json:"attempt" col:"ATTEMPT"`
	Level   string `json:"level" col:"LEVEL"`
	Text    string `json:"text" col:"TEXT"`
}

func newTasksShowCommand(app *App) *cobra.Command {
	return &cobra.Command{
		Use:   "show ID",
		Short: "Show a task with its attempts, errors, logs, output and progress",
		Args:  between(1, 1, "ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return app.withClient(cmd.Context(), func(client *tusk.Client) error {
				task, err := app.findAnywhere(cmd.Context(), client, args[0])
				if err != nil {
					return err
				}
				return app.printTask(viewOf(*task))
			})
		},
	}
}

func viewOf(t tusk.TaskInfo) taskView {
	v := taskView{taskRow: rowOf(t), Attempts: []attemptRow{}, Logs: []logRow{}}
	d := t.Detail
	if d == nil {
		return v
	}
	v.CancelRequested, v.Progress, v.Output = d.CancelRequested, d.Progress, d.Output
	if d.Changed != nil {
		v.Changed = &changeRow{instant(d.Changed.At), d.Changed.How}
	}
	v.Needs = len(d.Needs)
	for _, n := range d.Needs {
		if n.State == 0 || n.State.Finished() {
			v.NeedsEnded++
		}
	}
	for _, a := range d.Attempts {
		v.Attempts = append(v.Attempts, attemptRow{a.Number, a.Outcome, instant(a.StartedAt), instant(a.EndedAt),
			seconds(max(a.EndedAt.Sub(a.StartedAt), 0)), a.Worker, a.Fingerprint, a.Error, a.Trace})
	}
	for _, l := range d.Logs {
		v.Logs = append(v.Logs, logRow{moment(l.At), l.Attempt, l.Level, l.Text})
	}
	return v
}

func (app *App) printTask(v taskView) error {
	if app.flags.json || app.flags.quiet {
		return printOne(app, v)
	}
	if err := printOne(app, v.taskRow); err != nil {
		return err
	}
	out := app.Out
	if v.CancelRequested {
		fmt.Fprintln(out, "cancel\trequested")
	}
	if v.Changed != nil {
		fmt.Fprintf(out, "changed\t%s %s\n", v.Changed.How, app.cell(v.Changed.At))
	}
	if v.Needs > 0 {
		fmt.Fprintf(out, "needs\t%d of %s have ended\n", v.NeedsEnded, count(v.Needs, "task"))
	}
	if v.Progress != nil {
		fmt.Fprintf(out, "progress\t%g%% %s\n", v.Progress.Percent, printable(v.Progress.Message))
	}
	if len(v.Output) > 0 {
		fmt.Fprintf(out, "output\t%s\n", printable(string(v.Output)))
	}
	if len(v.Attempts) > 0 {
		fmt.Fprintln(out, "\nattempts")
		if err := printList(app, v.Attempts); err != nil {
			return err
		}
	}
	for _, a := range v.Attempts {
		printTrace(out, a)
	}
	if len(v.Logs) > 0 {
		fmt.Fprintln(out, "\nlogs")
		return printList(app, v.Logs)
	}
	return nil
}

// printTrace prints the stack of a panic with its line breaks.
func printTrace(out io.Writer, a attemptRow) {
	if a.Trace == "" {
		return
	}
	fmt.Fprintf(out, "\ntrace of attempt %d\n", a.Number)
	for _, line := range strings.Split(strings.TrimRight(a.Trace, "\n"), "\n") {
		indent := line[:len(line)-len(strings.TrimLeft(line, "\t"))]
		fmt.Fprintln(out, "  "+strings.ReplaceAll(indent, "\t", "    ")+printable(strings.TrimLeft(line, "\t")))
	}
}
