package cli

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/query"
	"github.com/tuskqueue/tusk/store"
)

// workerRow is a live worker.
type workerRow struct {
	ID          tusk.ID  `json:"id" col:"ID"`
	Host        string   `json:"host" col:"HOST"`
	PID         int      `json:"pid" col:"PID"`
	Queues      []string `json:"queues" col:"QUEUES"`
	Kinds       []string `json:"kinds" one:"KINDS"`
	Running     int      `json:"running" col:"RUNNING"`
	Hung        int      `json:"hung" col:"HUNG"`
	Concurrency int      `json:"concurrency" col:"CONCURRENCY"`
	Quiet       bool     `json:"quiet" col:"QUIET"` // it claims nothing more
	StartedAt   instant  `json:"started_at" col:"STARTED"`
	BeatAt      instant  `json:"beat_at" col:"BEAT"`
	ExpiresAt   instant  `json:"expires_at" one:"EXPIRES"`
	Version     string   `json:"version" col:"VERSION"`
}

func newWorkersCommand(app *App) *cobra.Command {
	c := &cobra.Command{
		Use:   "workers",
		Short: "List workers, and make some stop claiming",
	}
	c.AddCommand(newListCommand(app, "List the live workers, oldest first", "no worker is alive",
		func(ctx context.Context, client *tusk.Client) ([]workerRow, error) {
			workers, err := client.Workers(ctx)
			return rowsOf(workers, workerOf), err
		}),
		newWorkerSwitch(app, "quiet", "Make workers stop claiming; running tasks go on", (*tusk.Client).QuietWorker),
		newWorkerSwitch(app, "wake", "Make quiet workers claim again", (*tusk.Client).WakeWorker))
	return c
}

func newWorkerSwitch(
	app *App, verb, short string, do func(*tusk.Client, context.Context, tusk.ID) error,
) *cobra.Command {
	return &cobra.Command{
		Use:   verb + " WORKER…",
		Short: short,
		Args:  between(1, -1, "WORKER"),
		RunE: func(cmd *cobra.Command, names []string) error {
			return app.withClient(cmd.Context(), func(client *tusk.Client) error {
				rows := []doneRow{}
				for _, name := range names {
					id, err := findWorker(cmd.Context(), client, name)
					if err != nil {
						return err
					}
					if err := do(client, cmd.Context(), id); errors.Is(err, tusk.ErrRefused) {
						return &Problem{Code: "refused", Exit: exitConflict, Text: err.Error(), Err: err,
							Hint: "tusk queues pause QUEUE"}
					} else if err != nil {
						return err
					}
					rows = append(rows, doneRow{id.String(), map[string]string{"quiet": "quiet", "wake": "awake"}[verb]})
				}
				return printList(app, rows)
			})
		},
	}
}

// findWorker finds the live worker with the id, or the only one whose id begins or ends with text.
func findWorker(ctx context.Context, client *tusk.Client, text string) (tusk.ID, error) {
	if id, err := tusk.ParseID(text); err == nil {
		return id, nil
	}
	workers, err := client.Workers(ctx)
	if err != nil {
		return tusk.ID{}, err
	}
	part := strings.ReplaceAll(strings.ToLower(text), "-", "")
	var found []string
	var id tusk.ID
	for _, w := range workers {
		digits := hex.EncodeToString(w.ID[:])
		if query.IsPart(text) && (strings.HasPrefix(digits, part) || strings.HasSuffix(digits, part)) {
			id, found = w.ID, append(found, fmt.Sprintf("%s (%s)", w.ID, w.Host))
		}
	}
	switch len(found) {
	case 0:
		return id, fmt.Errorf("worker %s: %w: no living worker has this id", text, tusk.ErrNotFound)
	case 1:
		return id, nil
	}
	return id, &query.AmbiguousError{Part: text, Names: found}
}

func workerOf(w store.Worker) workerRow {
	return workerRow{w.ID, w.Host, w.PID, w.Queues, w.Kinds, w.Running, w.Hung, w.Concurrency, w.Quiet,
		instant(w.StartedAt), instant(w.BeatAt),
		instant(w.ExpiresAt), w.Version}
}
