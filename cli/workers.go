package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// workerRow is a living worker.
type workerRow struct {
	ID          tusk.ID  `json:"id" col:"ID"`
	Host        string   `json:"host" col:"HOST"`
	PID         int      `json:"pid" col:"PID"`
	Queues      []string `json:"queues" col:"QUEUES"`
	Kinds       []string `json:"kinds" one:"KINDS"`
	Running     int      `json:"running" col:"RUNNING"`
	Hung        int      `json:"hung" col:"HUNG"`
	Concurrency int      `json:"concurrency" col:"CONCURRENCY"`
	StartedAt   instant  `json:"started_at" col:"STARTED"`
	BeatAt      instant  `json:"beat_at" col:"BEAT"`
	ExpiresAt   instant  `json:"expires_at" one:"EXPIRES"`
	Version     string   `json:"version" col:"VERSION"`
}

func newWorkersCommand(app *App) *cobra.Command {
	c := &cobra.Command{
		Use:   "workers",
		Short: "List workers",
	}
	c.AddCommand(newListCommand(app, "List the living workers, oldest first", "no worker is alive",
		func(ctx context.Context, client *tusk.Client) ([]workerRow, error) {
			workers, err := client.Workers(ctx)
			return rowsOf(workers, workerOf), err
		}))
	return c
}

func workerOf(w store.Worker) workerRow {
	return workerRow{w.ID, w.Host, w.PID, w.Queues, w.Kinds, w.Running, w.Hung, w.Concurrency, instant(w.StartedAt), instant(w.BeatAt),
		instant(w.ExpiresAt), w.Version}
}
