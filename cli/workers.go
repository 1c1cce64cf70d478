package cli

import (
	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk"
)

// workerRow is a living worker.
type workerRow struct {
	ID          tusk.ID  `json:"id" col:"ID"`
	Host        string   `json:"host" col:"HOST"`
	PID         int      `json:"pid" col:"PID"`
	Queues      []string `json:"queues" col:"QUEUES"`
	Running     int      `json:"running" col:"RUNNING"`
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
	c.AddCommand(&cobra.Command{
		Use:   "list",
		Short: "List the living workers, oldest first",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, closeStore, err := app.Client(cmd.Context(), existing)
			if err != nil {
				return err
			}
			defer closeStore()
			workers, err := client.Workers(cmd.Context())
			if err != nil {
				return err
			}
			rows := make([]workerRow, len(workers))
			for i, w := range workers {
				rows[i] = workerRow{w.ID, w.Host, w.PID, w.Queues, w.Running, w.Concurrency,
					instant(w.StartedAt), instant(w.BeatAt), instant(w.ExpiresAt), w.Version}
			}
			return list(app, rows, "no worker is alive")
		},
	})
	return c
}
