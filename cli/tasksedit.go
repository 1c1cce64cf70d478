package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/query"
	"github.com/tuskqueue/tusk/store"
)

// editCommand describes a command that changes tasks.
type editCommand struct {
	name, short string
	op          store.Op
	asksForIDs  bool // ask even for tasks that were named one by one
	asks        bool // ask for tasks that a filter selected
	// flags adds the command's own flags; nil if it has none.
	flags func(cmd *cobra.Command, change *changeFlags)
}

var editCommands = []editCommand{
	{name: "cancel", op: store.Cancel, asks: true,
		short: "Cancel unfinished tasks; running tasks are told to stop",
		flags: func(cmd *cobra.Command, c *changeFlags) {
			cmd.Flags().StringVar(&c.reason, "reason", "", "`text` to keep with the task, as the reason")
		}},
	{name: "retry", op: store.Retry,
		short: "Run tasks again, now or later; by filter: failed tasks",
		flags: func(cmd *cobra.Command, c *changeFlags) { c.addWhen(cmd) }},
	{name: "delete", op: store.Delete, asks: true, asksForIDs: true,
		short: "Delete tasks that are not running, with their history"},
	{name: "reprioritize", op: store.Reprioritize,
		short: "Change the priority of tasks that have not started",
		flags: func(cmd *cobra.Command, c *changeFlags) {
			cmd.Flags().Var(numberFlag(&c.priority, -32768, 32767), "priority", "the new priority; lower runs sooner")
			_ = cmd.MarkFlagRequired("priority")
		}},
	{name: "move", op: store.Move,
		short: "Move tasks that have not started to another queue",
		flags: func(cmd *cobra.Command, c *changeFlags) {
			cmd.Flags().StringVar(&c.queue, "to", "", "queue `name`")
			cmd.Flags().BoolVar(&c.create, "create", false, "accept an unknown queue")
			_ = cmd.MarkFlagRequired("to")
		}},
	{name: "reschedule", op: store.Reschedule,
		short: "Change when waiting tasks run",
		flags: func(cmd *cobra.Command, c *changeFlags) {
			c.addWhen(cmd)
			cmd.MarkFlagsOneRequired("at", "in")
		}},
}

// changeFlags say what to change, and to what.
type changeFlags struct {
	priority      int16
	queue, reason string
	create        bool
	at            time.Time
	in            time.Duration
}

func (c *changeFlags) addWhen(cmd *cobra.Command) {
	cmd.Flags().Var(instantFlag(&c.at), "at", "at this time (RFC 3339)")
	cmd.Flags().Var(durationFlag(&c.in), "in", "after this duration")
	cmd.MarkFlagsMutuallyExclusive("at", "in")
}

// known rejects a move to an unknown queue, unless --create is given.
func (c *changeFlags) known(ctx context.Context, app *App) error {
	if c.queue == "" || c.create {
		return nil
	}
	return app.withClient(ctx, func(client *tusk.Client) error { return knownQueue(ctx, client, c.queue, orCreate) })
}

func (c *changeFlags) change(op store.Op) tusk.Change {
	return tusk.Change{Op: op, Priority: c.priority, Queue: c.queue, RunAt: c.at, Delay: c.in, Reason: c.reason}
}

func newEditCommand(app *App, e editCommand) *cobra.Command {
	var (
		filter filterFlags
		change changeFlags
		agreed consent
		how    operationFlags
	)
	c := &cobra.Command{
		Use:   e.name + " [ID…] [filter flags]",
		Short: e.short,
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			edit := &edit{app: app, editCommand: e, change: change.change(e.op), consent: agreed, operationFlags: how}
			named := len(args) > 0
			if named && (filter.narrow() || filter.all || filter.limit > 0 || how != (operationFlags{})) {
				return usage("leave out the ids or the filter flags", "tasks are named by their ids or by a filter, not both")
			}
			if !named && !filter.narrow() && !filter.all {
				return usage("give ids, or a filter such as --state or --queue, or --all", "%s: say which tasks", cmd.CommandPath())
			}
			if err := change.known(cmd.Context(), app); err != nil {
				return err
			}
			if named {
				return edit.named(cmd.Context(), args)
			}
			f, err := filter.filter()
			if err != nil {
				return firstProblem(err)
			}
			return edit.matching(cmd.Context(), f, filter.limit)
		},
	}
	if e.flags != nil {
		e.flags(c, &change)
	}
	agreed.addTo(c)
	how.addTo(c)
	filter.addTo(c)
	return c
}

// edit is one run of a command that changes tasks.
type edit struct {
	app *App
	editCommand
	operationFlags
	change  tusk.Change
	consent consent
}

// editedRow says what became of one named task.
type editedRow struct {
	ID     tusk.ID `json:"id" col:"ID"`
	Result string  `json:"result" col:"RESULT"`
	State  string  `json:"state" col:"STATE"`
}

// named changes tasks by their ids, or parts of ids, and reports the result for each.
func (e *edit) named(ctx context.Context, args []string) error {
	for _, text := range args {
		if err := query.CheckPart(text); err != nil {
			return err
		}
	}
	client, closeStore, err := e.app.Client(ctx, existing)
	if err != nil {
		return err
	}
	defer closeStore()
	var ids []tusk.ID
	seen := map[tusk.ID]bool{}
	for _, text := range args {
		id, err := query.FindID(ctx, client, query.Everything, text)
		if err != nil {
			return err
		}
		if !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	if e.consent.dryRun {
		return e.tryNamed(ctx, client, ids)
	}
	if e.asksForIDs {
		if err := e.app.confirm(&e.consent, e.name+" "+count(len(ids), "task")); err != nil {
			return err
		}
	}
	var rows []editedRow
	results := map[store.EditResult]int{}
	err = e.apply(ctx, client, ids, func(edited []tusk.Edited) {
		for _, one := range edited {
			results[one.Result]++
			row := editedRow{ID: one.ID, Result: one.Result.String()}
			if one.State != 0 {
				row.State = one.State.String()
			}
			rows = append(rows, row)
		}
	})
	printErr := printList(e.app, rows)
	if err == nil {
		err = e.verdict(len(ids), results)
	}
	return errors.Join(err, printErr)
}

// tryNamed is a dry run: it checks whether the tasks exist.
func (e *edit) tryNamed(ctx context.Context, client *tusk.Client, ids []tusk.ID) error {
	sum := editRow{Op: e.name, DryRun: true}
	for page := range slices.Chunk(ids, store.MaxPage) {
		tasks, err := client.List(ctx, tusk.Filter{IDs: page, Limit: len(page)})
		if err != nil {
			return err
		}
		sum.Matched += int64(len(tasks))
	}
	sum.Missing = len(ids) - int(sum.Matched)
	return printOne(e.app, sum)
}

// apply changes tasks page by page.
func (e *edit) apply(ctx context.Context, client *tusk.Client, ids []tusk.ID, tell func([]tusk.Edited)) error {
	progress := newProgress(e.app, int64(len(ids)))
	defer progress.end()
	done := 0
	for page := range slices.Chunk(ids, store.MaxPage) {
		edited, err := client.Edit(ctx, page, e.change)
		if err != nil && done > 0 {
			return fmt.Errorf("after %s: %w", count(done, "task"), err)
		}
		if err != nil {
			return err
		}
		tell(edited)
		done += len(page)
		progress.add(int64(len(page)), done)
	}
	return nil
}

// verdict returns an error if some of the named tasks were not changed.
func (e *edit) verdict(named int, results map[store.EditResult]int) error {
	switch {
	case results[store.Missing] > 0:
		return fmt.Errorf("%s: %d of %s: %w", e.name, results[store.Missing], count(named, "task"), tusk.ErrNotFound)
	case results[store.KeyTaken] > 0:
		return &Problem{Code: "key_taken", Exit: exitConflict, Hint: "tusk tasks list --key KEY finds the task that has it",
			Text: fmt.Sprintf("%s: %d of %s: another unfinished task has the key", e.name, results[store.KeyTaken],
				count(named, "task"))}
	case results[store.Refused] > 0:
		return fmt.Errorf("%s: %d of %s: %w: the state does not allow it", e.name, results[store.Refused],
			count(named, "task"), tusk.ErrRefused)
	}
	return nil
}
