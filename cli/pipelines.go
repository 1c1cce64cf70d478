package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk"
)

func newPipelinesCommand(app *App) *cobra.Command {
	c := &cobra.Command{
		Use:   "pipelines",
		Short: "Show how the stages of pipelines are doing",
		Long: `A pipeline is a fixed sequence of stages that a task passes. Programs define
pipelines; their workers tell the database of them when they start.`,
	}
	c.AddCommand(newPipelinesListCommand(app), newPipelinesShowCommand(app), &cobra.Command{
		Use:   "remove NAME…",
		Short: "Forget pipelines that no worker has any more; their tasks stay",
		Args:  between(1, -1, "NAME"),
		RunE: func(cmd *cobra.Command, names []string) error {
			return app.forEach(cmd.Context(), "pipeline", names, "removed", (*tusk.Client).RemovePipeline)
		},
	})
	return c
}

// pipelineRow sums up a pipeline.
type pipelineRow struct {
	Name       string   `json:"name" col:"NAME"`
	Stages     []string `json:"stages" col:"STAGES"`
	Unfinished int64    `json:"unfinished" col:"UNFINISHED"`
	Stuck      []string `json:"stuck" col:"STUCK"` // names of stages
	ToldAt     instant  `json:"told_at" col:"TOLD"`
}

func newPipelinesListCommand(app *App) *cobra.Command {
	return newListCommand(app, "List the pipelines and the stages that are stuck", "no worker has told of a pipeline",
		func(ctx context.Context, client *tusk.Client) ([]pipelineRow, error) {
			all, err := client.Pipelines(ctx)
			if err != nil {
				return nil, err
			}
			stats, err := client.AllPipelineStats(ctx, time.Now().Add(-time.Hour))
			return rowsOf(all, func(p tusk.PipelineInfo) pipelineRow { return summary(p, stats[p.Name]) }), err
		})
}

func summary(p tusk.PipelineInfo, stages []tusk.StageStats) pipelineRow {
	row := pipelineRow{Name: p.Name, Stages: []string{}, Stuck: []string{}, ToldAt: instant(p.ToldAt)}
	for _, s := range stages {
		row.Stages = append(row.Stages, s.Name)
		for _, n := range s.Tasks {
			row.Unfinished += n
		}
		if s.Stuck != "" {
			row.Stuck = append(row.Stuck, s.Name)
		}
	}
	return row
}

// stageRow is how a stage is doing.
type stageRow struct {
	Stage     string  `json:"stage" col:"STAGE"`
	Kind      string  `json:"kind"`
	Queue     string  `json:"queue" col:"QUEUE"`
	Paused    bool    `json:"paused"`
	Available int64   `json:"available" col:"AVAILABLE"`
	Running   int64   `json:"running" col:"RUNNING"`
	Waiting   int64   `json:"waiting" col:"WAITING"` // scheduled, retryable or pending
	Oldest    seconds `json:"oldest_seconds" col:"OLDEST"`
	Completed int64   `json:"completed" col:"COMPLETED"`
	Failed    int64   `json:"failed" col:"FAILED"`
	Discarded int64   `json:"discarded" col:"DISCARDED"`
	WaitP50   seconds `json:"wait_p50_seconds" col:"WAIT_P50"`
	WaitP95   seconds `json:"wait_p95_seconds"`
	RunP50    seconds `json:"run_p50_seconds" col:"RUN_P50"`
	RunP95    seconds `json:"run_p95_seconds"`
	Stuck     string  `json:"stuck" col:"STUCK"`
}

func newPipelinesShowCommand(app *App) *cobra.Command {
	var since time.Time
	c := &cobra.Command{
		Use:   "show NAME",
		Short: "List the stages of a pipeline with their depth, their statistics, and why one is stuck",
		Args:  between(1, 1, "NAME"),
		RunE: app.withArgs(func(ctx context.Context, client *tusk.Client, args []string) error {
			stages, err := client.PipelineStats(ctx, args[0], since)
			if err != nil {
				return err
			}
			return printList(app, rowsOf(stages, stageOf))
		}),
	}
	c.Flags().Var(whenFlag(&since, "1h"), "since", "statistics from when on: 2h, 7d or RFC 3339")
	return c
}

func stageOf(s tusk.StageStats) stageRow {
	row := stageRow{Stage: s.Name, Kind: s.Kind, Queue: s.Queue, Paused: s.Paused, Oldest: seconds(s.Oldest), Completed: s.Completed, Failed: s.Failed,
		Discarded: s.Discarded, WaitP50: seconds(s.Waited.Quantile(0.5)), WaitP95: seconds(s.Waited.Quantile(0.95)),
		RunP50: seconds(s.Ran.Quantile(0.5)), RunP95: seconds(s.Ran.Quantile(0.95)), Stuck: s.Stuck}
	for state, n := range s.Tasks {
		switch state {
		case tusk.StateAvailable:
			row.Available = n
		case tusk.StateRunning:
			row.Running = n
		default:
			row.Waiting += n
		}
	}
	return row
}
