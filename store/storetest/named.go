package storetest

import (
	"context"
	"strings"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// An engine's callers do not add the name of the call to an error, so the engine must, once.
var namedClauses = []clause{
	{"errors/each names its call once", func(t *T) {
		over, cancel := context.WithCancel(context.Background())
		cancel()
		for verb, err := range t.failures(over) {
			if err == nil || !namesOnce(err, verb) {
				t.Errorf("%s: %v", verb, err)
			}
		}
	}},
}

// namesOnce reports whether an error names a call, and at most once per line. An error has a line for each place that
// failed.
func namesOnce(err error, call string) bool {
	whole := 0
	for line := range strings.SplitSeq(err.Error(), "\n") {
		n := strings.Count(": "+line, ": "+call+": ")
		if n > 1 {
			return false
		}
		whole += n
	}
	return whole > 0
}

// failures returns the errors of all calls after their context has ended, by the name of the call.
func (t *T) failures(over context.Context) map[string]error {
	task := store.Task{ID: NewID(), Kind: "k", Queue: "q", Lease: store.NewToken(), State: store.Running, Attempt: 1}
	record := store.PutRecord{Record: store.Record{Kind: "setting", Name: "a", Body: []byte(`{}`)}}
	errs := map[string]error{}
	_, errs["enqueue"] = t.Enqueue(over, []store.NewTask{newTask()})
	_, errs["claim"] = t.Claim(over, store.ClaimRequest{Worker: NewID(), Queues: []string{"q"}, Limit: 1,
		Token: store.NewToken()})
	_, errs["extend"] = t.Extend(over, store.Beat{Worker: store.Worker{ID: NewID(), Queues: []string{"q"}},
		TTL: time.Minute})
	_, errs["finish"] = t.Finish(over, []store.Outcome{to(store.Completed, &task)})
	_, errs["lead"] = t.Lead(over, store.Candidate{ID: NewID(), TTL: time.Minute})
	_, errs["admit"] = t.Admit(over, 1, 1)
	_, errs["turns"] = t.Turns(over, 0, 1, 1)
	_, errs["grant"] = t.Grant(over, 1, []store.ID{NewID()})
	_, errs["rescue"] = t.Rescue(over, 1, 1)
	_, errs["prune"] = t.Prune(over, 1, store.Retention{}, 1)
	_, errs["list"] = t.List(over, store.Filter{})
	_, errs["count"] = t.Count(over)
	_, errs["stats"] = t.Stats(over, store.StatsFilter{Bucket: time.Minute})
	_, errs["errors"] = t.Errors(over, store.ErrorFilter{})
	_, errs["workers"] = t.Workers(over)
	_, errs["edit"] = t.Edit(over, store.Edit{IDs: []store.ID{NewID()}, Change: store.Change{Op: store.Cancel}})
	_, errs["records"] = t.Records(over, store.RecordFilter{Kind: "setting"})
	_, _, errs["put record"] = t.PutRecord(over, record)
	_, errs["update records"] = t.UpdateRecords(over, 0, []store.PutRecord{record})
	if s, ok := store.As[store.Searcher](t.Store); ok {
		_, _, errs["search"] = s.Search(over, store.Filter{}, 1)
	}
	if s, ok := store.As[store.Migrator](t.Store); ok {
		_, errs["migrations"] = s.Migrations(over)
		_, errs["migrate"] = s.Migrate(over, -1)
	}
	return errs
}
