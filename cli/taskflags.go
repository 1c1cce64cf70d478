package cli

import (
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/duration"
)

// taskFlags describe a task, apart from its kind and args.
type taskFlags struct {
	options    tusk.Options
	onConflict string
}

// addTo adds the flags that a schedule's tasks have too.
func (t *taskFlags) addTo(f *pflag.FlagSet) {
	o := &t.options
	f.StringVar(&o.Queue, "queue", tusk.DefaultQueue, "queue `name`")
	f.Var(numberFlag(&o.Priority, -32768, 32767), "priority", "lower runs sooner; default 0")
	f.Var(numberFlag(&o.MaxAttempts, 1, tusk.MaxAttemptsLimit), "max-attempts",
		"give up after this many attempts; default 25")
	f.Var(durationFlag(&o.Timeout), "timeout", "limit for each attempt; default: the handler's, else none")
	f.Var(durationFlag(&o.StallTimeout), "stall-timeout",
		"limit for each attempt without a sign of life: progress, a line of its log; default: the handler's, else none")
	f.Var(&value[tusk.Backoff]{into: &o.Backoff, name: "policy", parse: parseBackoff}, "backoff",
		"wait before a retry: constant:5s, linear:5m or exponential:BASE[:MAX[:JITTER]]")
	f.StringSliceVar(&o.Tags, "tags", nil, "`tag`,… to find the task by")
	f.StringToStringVar(&o.Metadata, "metadata", nil, "`name=value`,… for people and middleware")
	f.Lookup("metadata").DefValue = "" // otherwise the help shows []
	f.StringVar(&o.Tenant, "tenant", "", "`name` of the tenant that owns the task")
	f.StringVar(&o.Partition, "partition", "", "the partition within the tenant, any `text`, in queues with limits")
}

// addOwnTo adds the flags of a single task.
func (t *taskFlags) addOwnTo(cmd *cobra.Command) {
	f, o := cmd.Flags(), &t.options
	f.Var(instantFlag(&o.RunAt), "run-at", "the earliest start: a time (RFC 3339)")
	f.Var(durationFlag(&o.Delay), "delay", "the earliest start: a duration from now")
	f.Var(instantFlag(&o.ExpiresAt), "expires-at", "discard the task if it has not started by this time")
	f.Var(durationFlag(&o.ExpiresIn), "expires-in", "discard the task if it has not started within this duration")
	f.Var(instantFlag(&o.Deadline), "deadline", "stop and discard the task at this time")
	f.Var(durationFlag(&o.DeadlineIn), "deadline-in", "stop and discard the task after this duration")
	f.Var(numberFlag(&o.Weight, 1, 1000000), "weight", "how much the task counts in rate limits; default 1")
	f.BoolVar(&o.Ephemeral, "ephemeral", false, "do not keep the task once it is completed")
	f.StringVar(&o.Key, "key", "", "natural `identity`: at most one unfinished task of a queue and tenant has it")
	f.Var(oneOf(&t.onConflict, "skip", "replace", "rerun", "once"), "on-conflict",
		"if the key is taken: skip, replace, rerun or once; default skip")
	f.Var(instantFlag(&o.SourceTime), "source-time", "when the key's source changed, for --on-conflict rerun")
	f.Var(uniqueFlag(&o.Unique), "unique",
		"a key of the kind and these fields of the args: FIELD,…|all; with @DURATION, one task per time window")
	cmd.MarkFlagsMutuallyExclusive("key", "unique")
	cmd.MarkFlagsMutuallyExclusive("run-at", "delay")
	cmd.MarkFlagsMutuallyExclusive("expires-at", "expires-in")
	cmd.MarkFlagsMutuallyExclusive("deadline", "deadline-in")
}

// complete combines the flags into options.
func (t *taskFlags) complete() *tusk.Options {
	o := t.options
	o.OnConflict = conflictOf(t.onConflict)
	return &o
}

func conflictOf(word string) tusk.OnConflict {
	switch word {
	case "replace":
		return tusk.Replace
	case "rerun":
		return tusk.Rerun
	case "once":
		return tusk.Once
	}
	return tusk.Skip
}

func uniqueFlag(into **tusk.Unique) *value[*tusk.Unique] {
	return &value[*tusk.Unique]{into: into, name: "fields", parse: parseUnique}
}

// parseUnique reads FIELD,…[@DURATION]; all stands for all fields.
func parseUnique(text string) (*tusk.Unique, error) {
	fields, window, timed := strings.Cut(text, "@")
	u := &tusk.Unique{}
	if fields == "" {
		return nil, errors.New("want names of fields, or all, such as customer,month@24h")
	}
	if fields != "all" {
		u.Args = strings.Split(fields, ",")
	}
	if !timed {
		return u, nil
	}
	var err error
	if u.Window, err = duration.Parse(window); err == nil && u.Window == 0 {
		err = errors.New("the window must be a duration above 0")
	}
	return u, err
}

// parseBackoff drops the field's name from an error, because the flag or the member adds its own.
func parseBackoff(text string) (tusk.Backoff, error) {
	b, err := tusk.ParseBackoff(text)
	if bad := (*tusk.InvalidError)(nil); errors.As(err, &bad) {
		err = errors.New(bad.Text)
	}
	return b, err
}

// backoffText returns text that tusk.ParseBackoff reads, or "" for the default.
func backoffText(b tusk.Backoff) string {
	if b == (tusk.Backoff{}) {
		return ""
	}
	text := string(b.Shape) + ":" + duration.Text(b.Base)
	if b.Max > 0 {
		text += ":" + duration.Text(b.Max)
		if b.Jitter > 0 {
			text += ":" + strconv.FormatFloat(b.Jitter, 'g', -1, 64)
		}
	}
	return text
}
