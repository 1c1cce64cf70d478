package cli

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk"
)

// limitRow is a queue's limits.
type limitRow struct {
	Queue         string                       `json:"queue" col:"QUEUE"`
	Concurrency   int                          `json:"concurrency" col:"CONCURRENCY"`
	PerTenant     int                          `json:"per_tenant" col:"PER_TENANT"`
	PerPartition  int                          `json:"per_partition" col:"PER_PARTITION"`
	Rate          *tusk.Rate                   `json:"rate"`
	RateText      string                       `json:"-" col:"RATE"`
	TenantRate    *tusk.Rate                   `json:"tenant_rate"`
	PartitionRate *tusk.Rate                   `json:"partition_rate"`
	Tenants       map[string]tusk.TenantLimits `json:"tenants"`
	BlockOnRetry  bool                         `json:"block_on_retry" col:"BLOCK_ON_RETRY"`
}

func newLimitsCommand(app *App) *cobra.Command {
	c := &cobra.Command{
		Use:   "limits",
		Short: "Limit how many tasks of a queue run, and how often they start",
		Long: `A queue with limits takes its tasks in turns: its tenants share it fairly, by
weight, however many tasks each has. Limits count for tasks that are enqueued
after they were first set; changes count for all tasks that wait.`,
	}
	c.AddCommand(newLimitsListCommand(app), newLimitsSetCommand(app), &cobra.Command{
		Use:   "remove QUEUE…",
		Short: "Take the limits of queues away",
		Args:  between(1, -1, "QUEUE"),
		RunE: func(cmd *cobra.Command, names []string) error {
			return app.forEach(cmd.Context(), "queue", names, "removed", (*tusk.Client).RemoveLimits)
		},
	})
	return c
}

func newLimitsListCommand(app *App) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the queues that have limits",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, closeStore, err := app.Client(cmd.Context(), existing)
			if err != nil {
				return err
			}
			defer closeStore()
			limits, err := client.Limits(cmd.Context())
			if err != nil {
				return err
			}
			rows := make([]limitRow, 0, len(limits))
			for _, queue := range sortedKeys(limits) {
				l := limits[queue]
				rows = append(rows, limitRow{queue, l.Concurrency, l.PerTenant, l.PerPartition, l.Rate, rateText(l.Rate), l.TenantRate, l.PartitionRate, l.Tenants, l.BlockOnRetry})
			}
			return list(app, rows, "no queue has limits")
		},
	}
}

func newLimitsSetCommand(app *App) *cobra.Command {
	var (
		l       tusk.Limits
		tenants []string
		sliding bool
	)
	c := &cobra.Command{
		Use:   "set QUEUE",
		Short: "Set the limits of a queue, in place of those that it had",
		Long: `Set the limits of a queue, in place of those that it had. Without a flag the queue
is only made fair between its tenants.`,
		Example: `  tusk limits set reports --concurrency 20 --per-tenant 2 --tenant acme=5:3
  tusk limits set mail --rate 100/1m --tenant-rate 10/1s
  tusk limits set sync --per-partition 1 --block-on-retry`,
		Args: between(1, 1, "QUEUE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if l.Tenants, err = parseTenants(tenants); err != nil {
				return usage("", "--tenant: %v", err)
			}
			for _, r := range []*tusk.Rate{l.Rate, l.TenantRate, l.PartitionRate} {
				if r != nil && sliding {
					r.Algorithm = tusk.SlidingWindow
				}
			}
			client, closeStore, err := app.Client(cmd.Context(), existing)
			if err != nil {
				return err
			}
			defer closeStore()
			if err := client.SetLimits(cmd.Context(), args[0], l); err != nil {
				return firstProblem(err)
			}
			return printOne(app, doneRow{args[0], "stored"})
		},
	}
	f := c.Flags()
	f.Var(numberFlag(&l.Concurrency, 1, 1000000), "concurrency", "tasks of the queue that may run at a time")
	f.Var(numberFlag(&l.PerTenant, 1, 1000000), "per-tenant", "tasks of each tenant that may run at a time")
	f.Var(numberFlag(&l.PerPartition, 1, 1000000), "per-partition", "tasks of each partition of a tenant that may run at a time; 1: one after another")
	f.StringArrayVar(&tenants, "tenant", nil, "`NAME=CONCURRENCY[:WEIGHT]` of one tenant; 0: as for all")
	f.Var(rateFlag(&l.Rate), "rate", "tasks that may start in a period, such as 100/1m")
	f.Var(rateFlag(&l.TenantRate), "tenant-rate", "the same for each tenant")
	f.Var(rateFlag(&l.PartitionRate), "partition-rate", "the same for each partition of a tenant")
	f.BoolVar(&sliding, "sliding-window", false, "measure rates by a sliding window instead of a token bucket")
	f.BoolVar(&l.BlockOnRetry, "block-on-retry", false, "a failed task keeps its turn until its retries are over")
	return c
}

func rateFlag(into **tusk.Rate) *value[*tusk.Rate] {
	return &value[*tusk.Rate]{into: into, name: "number/duration", parse: func(text string) (*tusk.Rate, error) {
		number, period, ok := strings.Cut(text, "/")
		n, err := strconv.Atoi(number)
		if !ok || err != nil || n < 1 {
			return nil, errors.New("want a number and a duration, such as 100/1m")
		}
		d, err := parseDuration(period)
		if err != nil {
			return nil, err
		}
		return &tusk.Rate{Allowed: n, Period: d}, nil
	}}
}

func rateText(r *tusk.Rate) string {
	if r == nil {
		return ""
	}
	text := fmt.Sprintf("%d/%v", r.Allowed, r.Period)
	if r.Period%time.Minute == 0 {
		text = strings.TrimSuffix(text, "0s")
	}
	return text
}

func parseTenants(texts []string) (map[string]tusk.TenantLimits, error) {
	tenants := map[string]tusk.TenantLimits{}
	for _, text := range texts {
		name, rest, ok := strings.Cut(text, "=")
		number, weight, weighted := strings.Cut(rest, ":")
		n, err := strconv.Atoi(number)
		if !ok || err != nil || n < 0 {
			return nil, fmt.Errorf("%q: want NAME=CONCURRENCY[:WEIGHT], such as acme=5:3", text)
		}
		t := tusk.TenantLimits{Concurrency: n}
		if weighted {
			if t.Weight, err = strconv.ParseFloat(weight, 64); err != nil || !(t.Weight > 0) || math.IsInf(t.Weight, 0) {
				return nil, fmt.Errorf("%q: the weight is a number above 0", text)
			}
		}
		tenants[name] = t
	}
	return tenants, nil
}
