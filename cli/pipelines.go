package cli

import (
	"context"
	"encoding/json"
	"time"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk"
)

func newPipelinesCommand(app *App) *cobra.Command {
	c := &cobra.Command{
		Use:   "pipelines",
		Short: "Define and start pipelines, and show how their stages are doing",
		Long: `A pipeline is a fixed sequence of stages: the output of one stage is the input of the next.
The tasks of a stage have the kind PIPELINE.STAGE. Go programs define pipelines, and their
workers register them in the database when they start. For workers in other languages,
define a pipeline here.`,
	}
	c.AddCommand(newPipelinesListCommand(app), newPipelinesShowCommand(app), newPipelinesDefineCommand(app),
		newPipelinesStartCommand(app), &cobra.Command{
			Use:   "remove NAME…",
			Short: "Remove pipelines that no worker has any more; their tasks stay",
			Args:  between(1, -1, "NAME"),
			RunE: func(cmd *cobra.Command, names []string) error {
				return app.forEach(cmd.Context(), "pipeline", names, "removed", (*tusk.Client).RemovePipeline)
			},
		})
	return c
}

func newPipelinesDefineCommand(app *App) *cobra.Command {
	var dryRun bool
	c := &cobra.Command{
		Use:   "define NAME FILE|-",
		Short: "Define a pipeline from JSON, replacing one of that name",
		Long: `Define a pipeline from JSON: {"stages": [{"name", "queue", "tenant", "partition",
"priority", "tags", "max_attempts", "timeout", "stall_timeout", "deadline_in", "weight",
"backoff": "SHAPE:BASE[:MAX[:JITTER]]" or {"shape", "base", "max", "jitter"}}, …]}.
The shape of a backoff is constant, linear or exponential. Only the name is required. The
default queue of a stage is NAME.STAGE.

Workers in any language run the stages: by the HTTP API, as webhooks, or as commands of
tusk work --exec. Running tasks follow the new definition.`,
		Example: `  echo '{"stages":[{"name":"fetch"},{"name":"parse","max_attempts":3},{"name":"index"}]}' |
    tusk pipelines define ingest -
  tusk work --queue ingest.fetch --exec 'ingest.fetch=./fetch'`,
		Args: between(2, 2, "NAME", "FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := app.readInput(args[1])
			if err != nil {
				return err
			}
			p, err := tusk.ParsePipeline(args[0], text)
			if err != nil {
				return firstProblem(err)
			}
			row := definedRow{Name: args[0], Stages: stageNames(text), Queues: p.Queues(), DryRun: dryRun}
			if dryRun {
				app.note("the pipeline is fine; nothing was stored")
				return printOne(app, row)
			}
			client, closeStore, err := app.Client(cmd.Context(), creating)
			if err != nil {
				return err
			}
			defer closeStore()
			if err := client.DefinePipeline(cmd.Context(), p); err != nil {
				return err
			}
			return printOne(app, row)
		},
	}
	c.Flags().BoolVar(&dryRun, "dry-run", false, "check the definition, but store nothing")
	return c
}

func newPipelinesStartCommand(app *App) *cobra.Command {
	var task taskFlags
	var stage string
	c := &cobra.Command{
		Use:   "start NAME [INPUT-JSON|-]",
		Short: "Enqueue a task that enters a pipeline, at its first stage or another",
		Long: `Enqueue the task of a stage, and print its id, which is the id of the run, and the result.
INPUT-JSON is {} by default; - reads it from stdin. Options that are not given as flags come
from the definition of the stage.`,
		Example: `  tusk pipelines start ingest '{"url":"https://example.com"}'
  tusk pipelines start ingest '{"id":17}' --at index --priority -5`,
		Args: between(1, 2, "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			options := task.complete()
			if !cmd.Flags().Changed("queue") {
				options.Queue = "" // use the stage's
			}
			input := json.RawMessage("{}")
			if len(args) == 2 {
				var err error
				if input, err = app.argsJSON(args[1]); err != nil {
					return err
				}
			}
			client, closeStore, err := app.Client(cmd.Context(), existing)
			if err != nil {
				return err
			}
			defer closeStore()
			p, err := client.Pipeline(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			start := p.Start(input)
			if stage != "" {
				start = p.StartAt(stage, input)
			}
			result, err := client.Enqueue(cmd.Context(), start, options)
			if err != nil {
				return err
			}
			return printOne(app, enqueuedRow{result.ID, result.Result.String()})
		},
	}
	c.Flags().StringVar(&stage, "at", "", "enter the pipeline at this `stage`; default: the first")
	task.addTo(c.Flags())
	c.Flags().Lookup("queue").DefValue = ""
	c.Flags().Lookup("queue").Usage = "queue `name`, in place of the stage's"
	task.addOwnTo(c)
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
	return newListCommand(app, "List the pipelines and the stages that are stuck", "no worker has registered a pipeline",
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

// stageRow is the state of a stage.
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
	row := stageRow{Stage: s.Name, Kind: s.Kind, Queue: s.Queue, Paused: s.Paused, Oldest: seconds(s.Oldest),
		Completed: s.Completed, Failed: s.Failed,
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
