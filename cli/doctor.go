package cli

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/doctor"
	"github.com/tuskqueue/tusk/internal/words"
)

// findingRow is the result of one of the doctor's checks.
type findingRow struct {
	Status doctor.Status `json:"status" col:"STATUS"`
	Check  string        `json:"check" col:"CHECK"`
	Text   string        `json:"text" col:"FOUND"`
	Fix    string        `json:"fix" col:"FIX"`
}

func newDoctorCommand(app *App) *cobra.Command {
	o := doctor.Options{}.Complete()
	var ignore []string
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Report what is wrong: database, leader, workers, queues, schedules",
		Long: `Report what is wrong and how to fix it: the connection, the schema and the server's settings,
clocks, transactions that are held open, dead rows, pruning, the disk, the leader, workers of
other versions, queues without workers, tasks that run for long, missed schedules.

For monitoring systems, the exit status is 0 if all is well, 1 if something should be fixed
(warn), and 2 if something must be fixed (critical), also if the database cannot be reached.`,
		Example: `  tusk doctor
  tusk doctor --ignore pooler --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, check := range ignore {
				if !slices.Contains(doctor.Checks(), check) {
					return usage(words.DidYouMean(check, doctor.Checks()), "--ignore %s: want %s", quote(check),
						words.Either(doctor.Checks()))
				}
			}
			_, s, closeStore, err := app.open(cmd.Context(), existing)
			if err != nil {
				return app.diagnose(doctor.Facts{Connection: err}, o, ignore)
			}
			defer closeStore()
			client, err := tusk.NewClient(s, &tusk.ClientConfig{Logger: app.Log})
			if err != nil {
				return err
			}
			return app.diagnose(doctor.Gather(cmd.Context(), client, o), o, ignore)
		},
	}
	f := c.Flags()
	f.StringSliceVar(&ignore, "ignore", nil, "leave a `check` out; repeatable")
	f.Var(positiveFlag(&o.Open), "max-open", "how long a transaction may be open")
	f.Var(positiveFlag(&o.Waiting), "max-wait", "how long the oldest available task of a queue may wait")
	f.Var(positiveFlag(&o.Running), "max-run", "how long an attempt of a task may run")
	f.Var(positiveFlag(&o.Clock), "max-clock", "how much the clocks of this machine and the database may differ")
	f.Var(positiveFlag(&o.Completed), "keep-completed", "how long completed tasks are kept, as set for the workers")
	return c
}

// diagnose prints the findings. Its error sets the exit status.
func (app *App) diagnose(facts doctor.Facts, o doctor.Options, ignore []string) error {
	found := slices.DeleteFunc(doctor.Examine(facts, o), func(f doctor.Finding) bool {
		return slices.Contains(ignore, f.Check)
	})
	if err := printList(app, rowsOf(found, func(f doctor.Finding) findingRow {
		return findingRow{f.Status, f.Check, app.clean(f.Text), f.Fix}
	})); err != nil {
		return err
	}
	count := map[doctor.Status]int{}
	for _, f := range found {
		count[f.Status]++
	}
	text := fmt.Sprintf("critical: %d, warnings: %d, of %d findings", count[doctor.Critical], count[doctor.Warn],
		len(found))
	switch doctor.Worst(found) {
	case doctor.Critical:
		return &Problem{Code: "critical", Exit: exitCritical, Text: text}
	case doctor.Warn:
		return &Problem{Code: "warn", Exit: exitWarn, Text: text}
	}
	return nil
}
