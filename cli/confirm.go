package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// consent is how an operator agrees to a destructive command.
type consent struct {
	yes, dryRun bool
	hint        string // what to do if nobody can be asked
}

func (c *consent) addTo(cmd *cobra.Command) {
	c.hint = "look first with --dry-run, then pass --yes"
	cmd.Flags().BoolVar(&c.dryRun, "dry-run", false, "show what would be done, but do nothing")
	cmd.Flags().BoolVar(&c.yes, "yes", false, "do not ask for confirmation; required without a terminal")
}

// confirm asks on a terminal. Elsewhere --yes is required.
func (app *App) confirm(c *consent, question string) error {
	if c.yes {
		return nil
	}
	if !app.asked {
		return &Problem{Code: "confirmation_required", Exit: exitUsage, Text: question + ": refused without --yes",
			Hint: c.hint}
	}
	fmt.Fprintf(app.Err, "%s? [y/N] ", question)
	answer, err := bufio.NewReader(app.In).ReadString('\n')
	if err != nil {
		fmt.Fprintln(app.Err)
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	if answer = strings.ToLower(strings.TrimSpace(answer)); err == nil && (answer == "y" || answer == "yes") {
		return nil
	}
	return &Problem{Code: "declined", Exit: exitConflict, Text: "nothing was changed"}
}
