package cli

import (
	"context"
	"errors"
	"os/user"
	"time"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/words"
	"github.com/tuskqueue/tusk/server/query"
	"github.com/tuskqueue/tusk/store"
)

// mostCounted is how many tasks are counted at most before an operation on them.
const mostCounted = 100000

// operationFlags say how an operation is carried out.
type operationFlags struct {
	perSecond int
	detach    bool
}

func (o *operationFlags) addTo(cmd *cobra.Command) {
	cmd.Flags().Var(numberFlag(&o.perSecond, 1, 1000000), "per-second",
		"by filter: change at most this many tasks per second")
	cmd.Flags().BoolVar(&o.detach, "detach", false,
		"by filter: store the operation and leave it to the leader")
}

// editRow sums up the results for the tasks that a filter selected.
type editRow struct {
	Matched   int64  `json:"matched" col:"MATCHED"`
	More      bool   `json:"more" one:"MORE"` // counting stopped there
	Op        string `json:"op" col:"OP"`
	Operation string `json:"operation" one:"OPERATION"`
	Changed   int64  `json:"changed" col:"CHANGED"`
	Requested int64  `json:"requested" one:"REQUESTED"`
	Refused   int64  `json:"refused" one:"REFUSED"`
	Missing   int    `json:"missing" one:"MISSING"`
	KeyTaken  int64  `json:"key_taken" one:"KEY_TAKEN"`
	DryRun    bool   `json:"dry_run" one:"DRY_RUN"`
}

// matching changes all matching tasks with an operation.
func (e *edit) matching(ctx context.Context, f tusk.Filter, limit int) error {
	asked := f.States
	if f.States = tusk.StatesFor(e.op, asked); len(f.States) == 0 {
		return usage("give --state "+words.Either(tusk.StatesFor(e.op, store.States())),
			"%s: changes no task that is %s", e.name, words.Either(asked))
	}
	client, closeStore, err := e.app.Client(ctx, existing)
	if err != nil {
		return err
	}
	defer closeStore()
	n, err := client.Count(ctx, f, mostCounted)
	if err != nil {
		return err
	}
	if limit > 0 && n.Tasks >= int64(limit) {
		n = tusk.Matching{Tasks: int64(limit)}
	}
	tasks := count(int(n.Tasks), "task")
	if n.More {
		tasks = "more than " + tasks
	}
	e.app.note("%s: %s", e.name, tasks+map[bool]string{true: " matches", false: " match"}[n.Tasks == 1])
	sum := editRow{Op: e.name, Matched: n.Tasks, More: n.More, DryRun: e.consent.dryRun}
	if e.consent.dryRun || n.Tasks == 0 {
		return printOne(e.app, sum)
	}
	if e.asks {
		if err := e.app.confirm(&e.consent, e.name+" "+tasks); err != nil {
			return err
		}
	}
	o, err := client.StartOperation(ctx, f, e.change, &tusk.OperationOptions{PerSecond: e.perSecond, Limit: int64(limit),
		Expected: n.Tasks, By: e.app.whoami(), Via: "cli"})
	if err != nil {
		return err
	}
	if e.detach {
		e.app.tellWhoCarries(ctx, client)
		return printOne(e.app, operationOf(o))
	}
	o, err = e.app.carry(ctx, client, o, true)
	sum.Operation, sum.Changed, sum.Requested, sum.Refused, sum.KeyTaken = o.ID.String(), o.Changed, o.Requested,
		o.Refused, o.KeyTaken
	return errors.Join(printOne(e.app, sum), err)
}

// carry continues an operation until it is over, with a progress bar. An interrupt leaves the operation as it is, or
// cancels it if this command started it.
func (app *App) carry(ctx context.Context, client *tusk.Client, o tusk.Operation, own bool) (tusk.Operation, error) {
	bar := newProgress(app, o.Expected)
	seen := int64(0)
	ended, err := client.CarryOperation(ctx, o.ID, func(now tusk.Operation) {
		bar.add(now.Seen-seen, int(now.Seen))
		seen = now.Seen
	})
	bar.end()
	if ended.ID.IsZero() {
		ended = o
	}
	if err == nil || ctx.Err() == nil || !own {
		return ended, err
	}
	parting, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if stopErr := client.CancelOperation(parting, o.ID); stopErr != nil {
		return ended, errors.Join(err, stopErr)
	}
	last, stopErr := client.CarryOperation(parting, o.ID, nil)
	if stopErr != nil {
		return ended, errors.Join(err, stopErr)
	}
	return last, err
}

// whoami returns the name under which operations are recorded.
func (app *App) whoami() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return app.env["USER"]
}

// tellWhoCarries warns if there seems to be no process that can continue an operation.
func (app *App) tellWhoCarries(ctx context.Context, client *tusk.Client) {
	if workers, err := client.Workers(ctx); err == nil && len(workers) == 0 {
		app.note("no worker runs: it waits for one, for a server, or for tusk operations carry")
	}
}

// operationRow is an operation as list and show print it.
type operationRow struct {
	ID         string   `json:"id" col:"ID"`
	State      string   `json:"state" col:"STATE"`
	Op         string   `json:"op" col:"OP"`
	By         string   `json:"by" col:"BY"`
	Expected   int64    `json:"expected" col:"EXPECTED"`
	Seen       int64    `json:"seen" col:"SEEN"`
	Changed    int64    `json:"changed" col:"CHANGED"`
	Requested  int64    `json:"requested" one:"REQUESTED"`
	Refused    int64    `json:"refused" one:"REFUSED"`
	KeyTaken   int64    `json:"key_taken" one:"KEY_TAKEN"`
	Filter     string   `json:"filter" one:"FILTER"` // as a query of the task list: state=discarded&queue=mail
	Left       []string `json:"left" one:"LEFT"`     // the first tasks that were left alone
	PerSecond  int      `json:"per_second" one:"PER_SECOND"`
	StartedAt  instant  `json:"started_at" col:"STARTED"`
	FinishedAt instant  `json:"finished_at" col:"FINISHED"`
	Error      string   `json:"error" col:"ERROR"`
}

func operationOf(o tusk.Operation) operationRow {
	row := operationRow{o.ID.String(), string(o.State), o.Change.Op.String(), o.By, o.Expected, o.Seen, o.Changed,
		o.Requested, o.Refused, o.KeyTaken,
		query.Of(o.Filter).Values().Encode(), []string{}, o.PerSecond, instant(o.StartedAt), instant(o.FinishedAt), o.Error}
	for _, e := range o.Left {
		row.Left = append(row.Left, e.ID.String())
	}
	if o.CancelRequested && !o.Ended() {
		row.State = "stopping"
	}
	return row
}

func newOperationsCommand(app *App) *cobra.Command {
	c := &cobra.Command{
		Use:   "operations",
		Short: "Watch, continue and cancel bulk operations",
		Long: `A command that changes all tasks that match a filter stores an operation. The operation
outlives the command: the worker or the server that leads continues it. The latest 200
are kept.`,
	}
	c.AddCommand(newListCommand(app, "List bulk operations, newest first", "there is no bulk operation",
		func(ctx context.Context, client *tusk.Client) ([]operationRow, error) {
			operations, err := client.Operations(ctx)
			return rowsOf(operations, operationOf), err
		}),
		app.operationCommand("show ID", "Show a bulk operation",
			func(ctx context.Context, client *tusk.Client, o tusk.Operation) (tusk.Operation, error) {
				return o, nil
			}),
		app.operationCommand("carry ID", "Carry an operation on, or watch another process do it, until it is over",
			func(ctx context.Context, client *tusk.Client, o tusk.Operation) (tusk.Operation, error) {
				return app.carry(ctx, client, o, false)
			}),
		app.operationCommand("cancel ID", "Stop an operation; changes already made stay",
			func(ctx context.Context, client *tusk.Client, o tusk.Operation) (tusk.Operation, error) {
				if err := client.CancelOperation(ctx, o.ID); err != nil {
					return o, err
				}
				return client.Operation(ctx, o.ID)
			}))
	return c
}

// operationCommand returns a command that does one thing with an operation and prints its state.
func (app *App) operationCommand(
	use, short string, do func(context.Context, *tusk.Client, tusk.Operation) (tusk.Operation, error),
) *cobra.Command {
	return &cobra.Command{
		Use:   use,
		Short: short,
		Args:  between(1, 1, "ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := query.CheckPart(args[0]); err != nil {
				return err
			}
			return app.withClient(cmd.Context(), func(client *tusk.Client) error {
				id, err := query.FindOperation(cmd.Context(), client, nil, args[0])
				if err != nil {
					return err
				}
				o, err := client.Operation(cmd.Context(), id)
				if err != nil {
					return err
				}
				o, err = do(cmd.Context(), client, o)
				return errors.Join(printOne(app, operationOf(o)), err)
			})
		},
	}
}
