package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/query"
)

// tenantRow is what is known about a tenant.
type tenantRow struct {
	Name       string                       `json:"name" col:"NAME"`
	Queues     []string                     `json:"queues" col:"QUEUES"`
	Unfinished int64                        `json:"unfinished" col:"UNFINISHED"`
	Available  int64                        `json:"available" col:"AVAILABLE"`
	Running    int64                        `json:"running" col:"RUNNING"`
	Pending    int64                        `json:"pending" col:"PENDING"`
	Oldest     instant                      `json:"oldest" col:"OLDEST"`
	Limits     map[string]tusk.TenantLimits `json:"limits"`
	LimitsText string                       `json:"-" col:"LIMITS"`
}

func newTenantsCommand(app *App) *cobra.Command {
	c := &cobra.Command{
		Use:   "tenants",
		Short: "Show tenants and their tasks; set their limits and weights",
		Long: `A tenant is the owner of tasks. In a queue with limits, tenants take turns by weight. For
the limits that all tenants of a queue share, see tusk limits.`,
	}
	c.AddCommand(newTenantsListCommand(app), newTenantsSetCommand(app), newTenantsResetCommand(app))
	return c
}

func newTenantsListCommand(app *App) *cobra.Command {
	look := 20000
	c := newListCommand(app, "List tenants: those that have limits, and those of the newest unfinished tasks",
		"no tenant has an unfinished task or limits",
		func(ctx context.Context, client *tusk.Client) ([]tenantRow, error) {
			limits, err := client.Limits(ctx)
			if err != nil {
				return nil, err
			}
			own := map[string]map[string]tusk.TenantLimits{}
			for queue, l := range limits {
				for name, t := range l.Tenants {
					if own[name] == nil {
						own[name] = map[string]tusk.TenantLimits{}
					}
					own[name][queue] = t
				}
			}
			sums, looked, whole, err := query.Tenants(ctx, client, query.Everything, sortedKeys(own), look)
			if err == nil && !whole {
				app.note("counted among the newest %d unfinished tasks: there are more", looked)
			}
			return rowsOf(sums, func(sum query.TenantSum) tenantRow { return tenantOf(sum, own[sum.Name]) }), err
		})
	c.Flags().Var(numberFlag(&look, 1, 100_000_000), "look", "how many of the newest unfinished tasks to count")
	return c
}

func tenantOf(sum query.TenantSum, limits map[string]tusk.TenantLimits) tenantRow {
	row := tenantRow{Name: sum.Name, Queues: sum.Queues, Oldest: instant(sum.Oldest), Limits: limits}
	for state, n := range sum.Counts {
		row.Unfinished += n
		switch state {
		case tusk.StateAvailable.String():
			row.Available = n
		case tusk.StateRunning.String():
			row.Running = n
		case tusk.StatePending.String():
			row.Pending = n
		}
	}
	var texts []string
	for _, queue := range sortedKeys(limits) {
		texts = append(texts, queue+"="+tenantText(limits[queue]))
		if !slices.Contains(row.Queues, queue) {
			row.Queues = append(row.Queues, queue)
		}
	}
	row.LimitsText = strings.Join(texts, ",")
	if row.Queues == nil {
		row.Queues = []string{}
	}
	if row.Limits == nil {
		row.Limits = map[string]tusk.TenantLimits{}
	}
	return row
}

// tenantText returns CONCURRENCY[:WEIGHT], as tusk limits set reads it.
func tenantText(t tusk.TenantLimits) string {
	text := strconv.Itoa(t.Concurrency)
	if t.Weight > 0 {
		text += ":" + strconv.FormatFloat(t.Weight, 'g', -1, 64)
	}
	return text
}

func newTenantsSetCommand(app *App) *cobra.Command {
	var (
		queue string
		t     tusk.TenantLimits
	)
	c := &cobra.Command{
		Use:     "set TENANT --queue QUEUE",
		Short:   "Set the concurrency and the weight of a tenant in a queue",
		Example: "  tusk tenants set acme --queue reports --concurrency 5 --weight 3",
		Args:    between(1, 1, "TENANT"),
		RunE: app.withArgs(func(ctx context.Context, client *tusk.Client, args []string) error {
			if err := client.SetTenantLimits(ctx, queue, args[0], t); err != nil {
				return err
			}
			return printOne(app, doneRow{args[0], fmt.Sprintf("%s=%s", queue, tenantText(t))})
		}),
	}
	c.Flags().StringVar(&queue, "queue", "", "queue `name`")
	c.Flags().Var(numberFlag(&t.Concurrency, 1, 1000000), "concurrency",
		"tasks of the tenant that may run at the same time; default: the general limit")
	c.Flags().Var(weightFlag(&t.Weight), "weight", "its share of the queue, relative to other tenants, which have 1")
	_ = c.MarkFlagRequired("queue")
	c.MarkFlagsOneRequired("concurrency", "weight")
	return app.meantQueues(c, func([]string) []string { return []string{queue} })
}

func newTenantsResetCommand(app *App) *cobra.Command {
	var queue string
	c := &cobra.Command{
		Use:   "reset TENANT --queue QUEUE",
		Short: "Reset the limits and the weight of a tenant to the defaults",
		Args:  between(1, 1, "TENANT"),
		RunE: app.withArgs(func(ctx context.Context, client *tusk.Client, args []string) error {
			if err := client.SetTenantLimits(ctx, queue, args[0], tusk.TenantLimits{}); err != nil {
				return err
			}
			return printOne(app, doneRow{args[0], "reset"})
		}),
	}
	c.Flags().StringVar(&queue, "queue", "", "queue `name`")
	_ = c.MarkFlagRequired("queue")
	return c
}

func weightFlag(into *float64) *value[float64] {
	return &value[float64]{into: into, name: "number", parse: func(text string) (float64, error) {
		w, err := strconv.ParseFloat(text, 64)
		if err != nil || !(w > 0 && w <= 1000000) {
			return 0, errors.New("want a number above 0, at most 1000000")
		}
		return w, nil
	}}
}
