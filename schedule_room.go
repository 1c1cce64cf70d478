package tusk

import (
	"encoding/json"
	"fmt"

	"github.com/tuskqueue/tusk/internal/tick"
	"github.com/tuskqueue/tusk/store"
)

// Limits of the schedules in a database, in number and in bytes of JSON including args: the leader and every list
// hold all of them in memory. One tenant may use a quarter of that, so that no tenant can use up the limits of
// the others.
const (
	MaxSchedules     = 10000
	MaxScheduleBytes = 6 << 20

	tenantShare = 4
)

// scheduleSum is the number of schedules and their total size.
type scheduleSum struct{ schedules, bytes int }

func (s *scheduleSum) add(bytes int) { s.schedules, s.bytes = s.schedules+1, s.bytes+bytes }

// within rejects a sum that exceeds the limits divided by part.
func (s scheduleSum) within(whose string, part int) error {
	if s.schedules <= MaxSchedules/part && s.bytes <= MaxScheduleBytes/part {
		return nil
	}
	return invalid("schedules", "too_large",
		"%swould be %d with %d bytes, at most %d with %d bytes are allowed: remove some, or have their args refer to "+
			"what is large",
		whose, s.schedules, s.bytes, MaxSchedules/part, MaxScheduleBytes/part)
}

// roomForSchedule rejects a schedule of that size if it would exceed the limits together with the others.
func roomForSchedule(name, tenant string, bytes int, others []store.Record) error {
	all, own := scheduleSum{1, bytes}, scheduleSum{1, bytes}
	for _, r := range others {
		if r.Name != name {
			all.add(len(r.Body))
		}
	}
	if err := all.within("", 1); err != nil || tenant == "" || all.within("", tenantShare) == nil {
		return err
	}
	for _, r := range others {
		var of struct{ Tenant string }
		if err := json.Unmarshal(r.Body, &of); err != nil {
			return fmt.Errorf("%s %s: %w", tick.RecordKind, r.Name, err)
		}
		if r.Name != name && of.Tenant == tenant {
			own.add(len(r.Body))
		}
	}
	return own.within("of the tenant "+tenant+" ", tenantShare)
}
