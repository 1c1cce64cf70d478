package cli

import (
	"cmp"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
)

// statRow sums up the attempts of a queue and kind that ended in a slice of time.
type statRow struct {
	At        moment  `json:"at" col:"AT"`
	Queue     string  `json:"queue" col:"QUEUE"`
	Kind      string  `json:"kind" col:"KIND"`
	Count     int64   `json:"count" col:"COUNT"` // number of attempts
	Completed int64   `json:"completed" col:"COMPLETED"`
	Failed    int64   `json:"failed" col:"FAILED"`
	Discarded int64   `json:"discarded" col:"DISCARDED"`
	Cancelled int64   `json:"cancelled" col:"CANCELLED"`
	WaitTotal seconds `json:"wait_total_seconds" one:"WAIT_TOTAL"`
	WaitMean  seconds `json:"wait_mean_seconds" col:"WAIT_MEAN"`
	WaitP50   seconds `json:"wait_p50_seconds" col:"P50"`
	WaitP95   seconds `json:"wait_p95_seconds" col:"P95"`
	WaitP99   seconds `json:"wait_p99_seconds" col:"P99"`
	RunTotal  seconds `json:"run_total_seconds" one:"RUN_TOTAL"`
	RunMean   seconds `json:"run_mean_seconds" col:"RUN_MEAN"`
	RunP50    seconds `json:"run_p50_seconds" col:"P50"`
	RunP95    seconds `json:"run_p95_seconds" col:"P95"`
	RunP99    seconds `json:"run_p99_seconds" col:"P99"`
}

func statOf(s store.Stat) statRow {
	w, r := &s.Waited, &s.Ran
	at := func(d *store.Durations, q float64) seconds { return seconds(d.Quantile(q)) }
	return statRow{moment(s.At), s.Queue, s.Kind, r.Count, s.Completed, s.Failed, s.Discarded, s.Cancelled,
		seconds(w.Sum), seconds(w.Mean()), at(w, 0.5), at(w, 0.95), at(w, 0.99),
		seconds(r.Sum), seconds(r.Mean()), at(r, 0.5), at(r, 0.95), at(r, 0.99)}
}

// totalled sums up the slices of each queue and kind, ordered by name.
func totalled(stats []store.Stat) []store.Stat {
	var sums []store.Stat
	slices.SortStableFunc(stats, func(a, b store.Stat) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Kind, b.Kind), a.At.Compare(b.At))
	})
	for i := range stats {
		s := &stats[i]
		if n := len(sums); n == 0 || sums[n-1].Queue != s.Queue || sums[n-1].Kind != s.Kind {
			sums = append(sums, store.Stat{At: s.At, Queue: s.Queue, Kind: s.Kind})
		}
		addStat(&sums[len(sums)-1], s)
	}
	return sums
}

func addStat(sum, s *store.Stat) {
	sum.Completed += s.Completed
	sum.Failed += s.Failed
	sum.Discarded += s.Discarded
	sum.Cancelled += s.Cancelled
	sum.Waited.Merge(&s.Waited)
	sum.Ran.Merge(&s.Ran)
}

func newStatsCommand(app *App) *cobra.Command {
	var (
		by          = "hour"
		since       time.Time
		until       time.Time
		queue, kind string
	)
	c := &cobra.Command{
		Use:   "stats",
		Short: "Count attempts and failures, with waiting and running times",
		Long: `Summarize the attempts that ended in each time slice, by queue and kind: how many ended,
how many failed, and the mean and quantiles of the time they waited (from due to claimed)
and ran. Quantiles come from a histogram and are at most a fifth too high. The sum of all
rows goes to standard error.`,
		Example: "  tusk stats --by minute --since 1h --queue mail",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := validNames(queue, kind); err != nil {
				return err
			}
			if !until.IsZero() && !since.Before(until) {
				return usage("", "--since is not before --until")
			}
			bucket := map[string]time.Duration{"minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour,
				"total": time.Hour}[by]
			return app.withClient(cmd.Context(), func(client *tusk.Client) error {
				stats, err := client.Stats(cmd.Context(), store.StatsFilter{Bucket: bucket, From: since, Until: until, Queue: queue,
					Kind: kind})
				if err != nil {
					return err
				}
				if by == "total" {
					stats = totalled(stats)
				}
				if err := list(app, rowsOf(stats, statOf), "no attempt has ended in this time"); err != nil || len(stats) == 0 {
					return err
				}
				var all store.Stat
				for i := range stats {
					addStat(&all, &stats[i])
				}
				app.note("in all %s: %d completed, %d failed, %d discarded, %d cancelled; waited p95 %s, ran p95 %s",
					count(int(all.Ran.Count), "attempt"), all.Completed, all.Failed, all.Discarded, all.Cancelled,
					inWords(all.Waited.Quantile(0.95)), inWords(all.Ran.Quantile(0.95)))
				return nil
			})
		},
	}
	c.Flags().Var(oneOf(&by, "minute", "hour", "day", "total"), "by",
		"slice of time: minute, hour or day; total: one row for all of it")
	c.Flags().Var(whenFlag(&since, "24h"), "since", "from when on: 2h, 7d or RFC 3339")
	c.Flags().Var(whenFlag(&until, ""), "until", "up to when: 2h, 7d or RFC 3339")
	c.Flags().StringVar(&queue, "queue", "", "queue `name`")
	c.Flags().StringVar(&kind, "kind", "", "kind `name`")
	return c
}
