package postgres

import (
	"strconv"
	"strings"

	"github.com/tuskqueue/tusk/store"
)

// conditions are the conditions of one part of a statement.
type conditions struct {
	args []any // of the whole statement
	list []string
}

// text returns the where clause.
func (c *conditions) text() string {
	if len(c.list) == 0 {
		return ""
	}
	return "\nwhere " + strings.Join(c.list, "\n  and ")
}

// add appends a condition, in which ? stands for the argument.
func (c *conditions) add(condition string, arg any) {
	c.list = append(c.list, strings.ReplaceAll(condition, "?", c.arg(arg)))
}

// arg adds an argument to the statement, and returns its name.
func (c *conditions) arg(arg any) string {
	c.args = append(c.args, arg)
	return "$" + strconv.Itoa(len(c.args))
}

// of appends the conditions of a filter.
func (c *conditions) of(f *store.Filter) {
	if len(f.Queues) > 0 {
		c.add("s.lane >> 16 = any(?)", hashesOf(f.Queues))
	}
	if len(f.Kinds) > 0 {
		c.add("s.kind = any(?)", f.Kinds)
	}
	if len(f.Tenants) > 0 {
		c.add("coalesce(s.tenant, '') = any(?)", f.Tenants)
	}
	if len(f.States) > 0 {
		c.add("s.state = any(?)", numbersOf(f.States))
	}
	if len(f.Tags) > 0 {
		c.add("s.tags operator(pg_catalog.@>) ?::text[]", f.Tags)
	}
	if f.Key != "" {
		c.add("s.key = ?", f.Key)
	}
	if !f.Workflow.IsZero() {
		c.add("s.workflow = ?", [16]byte(f.Workflow))
	}
	if f.Fingerprint != "" {
		c.add("s.failure = ?", f.Fingerprint)
	}
	if !f.From.IsZero() {
		c.add("s.enqueued_at >= ?", f.From)
	}
	if !f.Until.IsZero() {
		c.add("s.enqueued_at < ?", f.Until)
	}
	if !f.Before.IsZero() {
		c.add("s.id < ?", [16]byte(f.Before))
	}
}

func hashesOf(queues []string) []int64 {
	hashes := make([]int64, len(queues))
	for i, queue := range queues {
		hashes[i] = hashOf(queue)
	}
	return hashes
}

func numbersOf(states []store.State) []int16 {
	numbers := make([]int16, len(states))
	for i, state := range states {
		numbers[i] = int16(state)
	}
	return numbers
}
