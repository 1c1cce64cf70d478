package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/duration"
)

// limitRow is a queue's limits.
type limitRow struct {
	Queue         string                       `json:"queue" col:"QUEUE"`
	Concurrency   limit                        `json:"concurrency" col:"CONCURRENCY"`
	PerTenant     limit                        `json:"per_tenant" col:"PER_TENANT"`
	PerPartition  limit                        `json:"per_partition" col:"PER_PARTITION"`
	PerWorker     limit                        `json:"per_worker" col:"PER_WORKER"`
	Rate          *rateRow                     `json:"rate"`
	RateText      string                       `json:"-" col:"RATE"`
	TenantRate    *rateRow                     `json:"tenant_rate"`
	PartitionRate *rateRow                     `json:"partition_rate"`
	Tenants       map[string]tusk.TenantLimits `json:"tenants"`
	BlockOnRetry  bool                         `json:"block_on_retry" col:"BLOCK_ON_RETRY"`
	Held          int64                        `json:"held" col:"HELD"`
	Waiting       int64                        `json:"waiting" col:"WAITING"`
}

// rateRow is how often tasks may start.
type rateRow struct {
	Allowed   int     `json:"allowed"`
	Period    seconds `json:"period_seconds"`
	Algorithm string  `json:"algorithm,omitempty"`
}

func rowOfRate(r *tusk.Rate) *rateRow {
	if r == nil {
		return nil
	}
	return &rateRow{r.Allowed, seconds(r.Period), string(r.Algorithm)}
}

// limit is a maximum number of tasks; 0 means no limit.
type limit int

func (l limit) terminal() string {
	if l == 0 {
		return "none"
	}
	return strconv.Itoa(int(l))
}

func newLimitsCommand(app *App) *cobra.Command {
	c := &cobra.Command{
		Use:   "limits",
		Short: "Limit how many tasks of a queue run, and how often they start",
		Long: `Tasks of a queue with limits take turns: its tenants share the queue by weight, however
many tasks each has. The first limits of a queue apply to tasks that are enqueued
afterwards; changes apply to all waiting tasks.`,
	}
	c.AddCommand(newLimitsListCommand(app), newLimitsShowCommand(app), app.meant(newLimitsSetCommand(app)), &cobra.Command{
		Use:   "remove QUEUE…",
		Short: "Remove the limits of queues",
		Args:  between(1, -1, "QUEUE"),
		RunE: func(cmd *cobra.Command, names []string) error {
			return app.forEach(cmd.Context(), "queue", names, "removed", (*tusk.Client).RemoveLimits)
		},
	})
	return c
}

func newLimitsListCommand(app *App) *cobra.Command {
	return newListCommand(app, "List the queues that have limits, with what has a turn and what is pending",
		"no queue has limits",
		func(ctx context.Context, client *tusk.Client) ([]limitRow, error) {
			limits, err := client.Limits(ctx)
			if err != nil {
				return nil, err
			}
			held, waiting, err := turnsOf(ctx, client)
			return rowsOf(sortedKeys(limits), func(queue string) limitRow {
				l := limits[queue]
				return limitRow{queue, limit(l.Concurrency), limit(l.PerTenant), limit(l.PerPartition),
					limit(l.PerWorker), rowOfRate(l.Rate), rateText(l.Rate), rowOfRate(l.TenantRate),
					rowOfRate(l.PartitionRate), l.Tenants, l.BlockOnRetry, held[queue], waiting[queue]}
			}), err
		})
}

// turnsOf counts, by queue, the tasks that have their turn and those that are pending.
func turnsOf(ctx context.Context, client *tusk.Client) (held, waiting map[string]int64, err error) {
	counts, err := client.TurnCounts(ctx, "")
	if err != nil {
		return nil, nil, err
	}
	queues, err := client.Queues(ctx)
	if err != nil {
		return nil, nil, err
	}
	held, waiting = map[string]int64{}, map[string]int64{}
	for _, c := range counts {
		held[c.Queue] += c.Held
	}
	for _, q := range queues {
		waiting[q.Name] = q.Tasks[tusk.StatePending]
	}
	return held, waiting, nil
}

// turnRow says who has turns and who waits for them.
type turnRow struct {
	Tenant    string `json:"tenant" col:"TENANT"`
	Partition string `json:"partition" col:"PARTITION"`
	Held      int64  `json:"held" col:"HELD"`
	Waiting   int    `json:"waiting" col:"WAITING"`
	More      bool   `json:"more" col:"MORE"`
}

func newLimitsShowCommand(app *App) *cobra.Command {
	return &cobra.Command{
		Use:   "show QUEUE",
		Short: "Show who has turns in a queue and who waits for one",
		Long: `Show how many tasks of each tenant and partition of a queue have their turn, and how many
wait for it, the longest wait first. The command looks at the 1,000 tenants and partitions
of all queues that have waited longest, and at up to 1,000 tasks of each; MORE says that
there may be more.`,
		Args: between(1, 1, "QUEUE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := tusk.ValidateName("queue", args[0]); err != nil {
				return err
			}
			return app.withClient(cmd.Context(), func(client *tusk.Client) error {
				counts, err := client.TurnCounts(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				nobody := ""
				if len(counts) == 0 {
					if nobody, err = whyNobody(cmd.Context(), client, args[0]); err != nil {
						return err
					}
				}
				return list(app, rowsOf(counts, turnOf), nobody)
			})
		},
	}
}

// whyNobody says why no task of a queue has a turn or waits for one. The error says that there is no such queue.
func whyNobody(ctx context.Context, client *tusk.Client, queue string) (string, error) {
	if err := knownQueue(ctx, client, queue, ""); err != nil {
		return "", err
	}
	limits, err := client.Limits(ctx)
	if _, limited := limits[queue]; !limited {
		return "queue " + queue + " has no limits, so its tasks take no turns", err
	}
	return "nobody has a turn or waits for one", err
}

func turnOf(c tusk.TurnCount) turnRow {
	return turnRow{c.Tenant, c.Partition, c.Held, c.Waiting, c.More}
}

func newLimitsSetCommand(app *App) *cobra.Command {
	var (
		l       tusk.Limits
		tenants []string
		sliding bool
	)
	c := &cobra.Command{
		Use:   "set QUEUE",
		Short: "Set the limits of a queue, replacing the previous ones",
		Long: `Set the limits of a queue, replacing the previous ones. Without a flag, the queue is only
made fair between its tenants.`,
		Example: `  tusk limits set reports --concurrency 20 --per-tenant 2 --tenant acme=5:3
  tusk limits set mail --rate 100/1m --tenant-rate 10/1s
  tusk limits set sync --per-partition 1 --block-on-retry
  tusk limits set gpu --per-worker 1`,
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
			return app.withClient(cmd.Context(), func(client *tusk.Client) error {
				if err := client.SetLimits(cmd.Context(), args[0], l); err != nil {
					return firstProblem(err)
				}
				return printOne(app, doneRow{args[0], "stored"})
			})
		},
	}
	f := c.Flags()
	f.Var(numberFlag(&l.Concurrency, 1, 1000000), "concurrency", "tasks of the queue that may run at the same time")
	f.Var(numberFlag(&l.PerTenant, 1, 1000000), "per-tenant", "tasks of each tenant that may run at the same time")
	f.Var(numberFlag(&l.PerPartition, 1, 1000000), "per-partition",
		"tasks of each partition of a tenant that may run at the same time; 1: one after another")
	f.Var(numberFlag(&l.PerWorker, 1, 1000000), "per-worker",
		"tasks of the queue that each worker may hold; alone it takes no turns")
	f.StringArrayVar(&tenants, "tenant", nil, "`NAME=CONCURRENCY[:WEIGHT]` of one tenant; 0: the general limit")
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
		d, err := duration.Parse(period)
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
	return strconv.Itoa(r.Allowed) + "/" + duration.Text(r.Period)
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
