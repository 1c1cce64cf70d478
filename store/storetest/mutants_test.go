package storetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// mutants are faults, each of which breaks one promise.
var mutants = map[string]func(*mutant){
	// Enqueue
	"args are tidied": func(m *mutant) {
		m.enqueue = eachNew(m, func(n *store.NewTask) {
			var tidy bytes.Buffer
			if json.Compact(&tidy, n.Args) == nil {
				n.Args = tidy.Bytes()
			}
		})
	},
	"tags are dropped": func(m *mutant) { m.enqueue = eachNew(m, func(n *store.NewTask) { n.Tags = nil }) },
	"settings are dropped": func(m *mutant) {
		m.enqueue = eachNew(m, func(n *store.NewTask) { n.Settings = nil })
	},
	"delays are ignored": func(m *mutant) { m.enqueue = eachNew(m, func(n *store.NewTask) { n.Delay = 0 }) },
	"expiry in a while is ignored": func(m *mutant) {
		m.enqueue = eachNew(m, func(n *store.NewTask) { n.ExpiresIn = 0 })
	},
	"an expiry is ignored": func(m *mutant) {
		m.enqueue = eachNew(m, func(n *store.NewTask) { n.ExpiresAt = time.Time{} })
	},
	"run times are ignored": func(m *mutant) {
		m.enqueue = eachNew(m, func(n *store.NewTask) { n.RunAt = time.Time{} })
	},
	"tenants are dropped": func(m *mutant) {
		m.enqueue = eachNew(m, func(n *store.NewTask) { n.Tenant = "" })
	},
	"the caller's slices are kept": func(m *mutant) { m.enqueue, m.list = m.sharedSlices() },
	"source times are ignored": func(m *mutant) {
		m.enqueue = eachNew(m, func(n *store.NewTask) { n.SourceTime = time.Time{} })
	},
	"priorities are turned round": func(m *mutant) {
		m.enqueue = eachNew(m, func(n *store.NewTask) { n.Priority = ^n.Priority })
	},
	"a batch arrives back to front":   func(m *mutant) { m.enqueue = m.backToFront },
	"keys are not unique":             func(m *mutant) { m.enqueue = eachNew(m, func(n *store.NewTask) { n.Key = "" }) },
	"keys are shared by all queues":   func(m *mutant) { m.enqueue = m.sharedKeys },
	"replace is skip":                 func(m *mutant) { m.enqueue = eachNew(m, conflictIs(store.Replace, store.Skip)) },
	"rerun is replace":                func(m *mutant) { m.enqueue = eachNew(m, conflictIs(store.Rerun, store.Replace)) },
	"a rerun is forgotten":            func(m *mutant) { m.enqueue = m.forgetReruns },
	"a rerun keeps the oldest values": func(m *mutant) { m.enqueue = m.firstRerunOnly },
	"a conflict fails the batch": func(m *mutant) {
		m.enqueue = func(ctx context.Context, tasks []store.NewTask) ([]store.Enqueued, error) {
			results, err := m.Store.Enqueue(ctx, tasks)
			for _, r := range results {
				if r.Result == store.Skipped {
					err = errors.New("unique constraint")
				}
			}
			return results, err
		}
	},

	// Claim
	"a task is lent twice": func(m *mutant) {
		var last []store.Task
		m.claim = func(ctx context.Context, r store.ClaimRequest) ([]store.Task, error) {
			tasks, err := m.Store.Claim(ctx, r)
			m.mu.Lock()
			defer m.mu.Unlock()
			if err == nil && len(tasks) == 0 {
				return last, nil
			}
			last = tasks
			return tasks, err
		}
	},
	"one more than the limit": func(m *mutant) { m.claim = asking(m, func(r *store.ClaimRequest) { r.Limit++ }) },
	"only the first queue": func(m *mutant) {
		m.claim = asking(m, func(r *store.ClaimRequest) { r.Queues = r.Queues[:1] })
	},
	"queues in an order of its own": func(m *mutant) {
		m.claim = asking(m, func(r *store.ClaimRequest) { slices.Sort(r.Queues); slices.Reverse(r.Queues) })
	},
	"a lost answer stays lost": func(m *mutant) {
		m.claim = asking(m, func(r *store.ClaimRequest) { r.Again = false })
	},
	"a lost answer is given as it was": func(m *mutant) { m.claim = m.firstAnswers() },
	"tags are not handed out":          func(m *mutant) { m.claim = eachClaimed(m, func(t *store.Task) { t.Tags = nil }) },
	"settings are not handed out": func(m *mutant) {
		m.claim = eachClaimed(m, func(t *store.Task) { t.Settings = nil })
	},
	"keys are not handed out":    func(m *mutant) { m.claim = eachClaimed(m, func(t *store.Task) { t.Key = "" }) },
	"tenants are not handed out": func(m *mutant) { m.claim = eachClaimed(m, func(t *store.Task) { t.Tenant = "" }) },
	"crashes are not handed out": func(m *mutant) { m.claim = eachClaimed(m, func(t *store.Task) { t.Crashes = 0 }) },
	"a repeated request claims":  func(m *mutant) { m.claim = m.claimsAgain },
	"attempts are not counted":   func(m *mutant) { m.claim = eachClaimed(m, func(t *store.Task) { t.Attempt = 0 }) },
	"args are not handed out":    func(m *mutant) { m.claim = eachClaimed(m, func(t *store.Task) { t.Args = nil }) },
	"expiry is not handed out": func(m *mutant) {
		m.claim = eachClaimed(m, func(t *store.Task) { t.ExpiresAt = time.Time{} })
	},
	"strangers may claim": func(m *mutant) { m.claim = m.strangersClaim },

	// Extend
	"notes are dropped":   func(m *mutant) { m.extend = beating(m, func(b *store.Beat) { b.Notes = nil }) },
	"notes need no lease": func(m *mutant) { m.extend = beating(m, func(b *store.Beat) { m.openLeases(b.Notes) }) },
	"signing off is forgotten": func(m *mutant) {
		m.extend = beating(m, func(b *store.Beat) { b.TTL = max(b.TTL, time.Minute) })
	},
	"leases are short": func(m *mutant) {
		m.extend = beating(m, func(b *store.Beat) { b.TTL = min(b.TTL, 60*time.Millisecond) })
	},
	"a beat after the first is lost": func(m *mutant) { m.extend = m.firstBeatOnly },
	"a dead worker comes back":       func(m *mutant) { m.extend = m.reviving },
	"a late worker is dead":          func(m *mutant) { m.extend = m.unforgiving },
	"labels are dropped": func(m *mutant) {
		m.extend = beating(m, func(b *store.Beat) { b.Worker = store.Worker{ID: b.Worker.ID} })
	},
	"a cancel is not told":  func(m *mutant) { m.extend = m.told(func([]store.Stop) []store.Stop { return nil }) },
	"a cancel is told once": func(m *mutant) { m.extend = m.toldOnce() },

	// Finish
	"any token will do":                func(m *mutant) { m.finish = m.anyToken },
	"a second outcome is welcome":      func(m *mutant) { m.finish = m.silently },
	"one lost outcome loses the batch": func(m *mutant) { m.finish = m.allLost },
	"a lost outcome stops the batch":   func(m *mutant) { m.finish = m.stopAtLost },
	"a refused note is kept":           func(m *mutant) { m.finish = m.keepsRefusedNotes },
	"the last note is dropped": func(m *mutant) {
		m.finish = eachOutcome(m, func(o *store.Outcome) { o.Note = nil })
	},
	"attempts are never refunded": func(m *mutant) {
		m.finish = eachOutcome(m, func(o *store.Outcome) { o.Attempt = o.Task.Attempt })
	},
	"crashes are not kept":  func(m *mutant) { m.finish = eachOutcome(m, func(o *store.Outcome) { o.Crashes = 0 }) },
	"reasons are not kept":  func(m *mutant) { m.finish = eachOutcome(m, func(o *store.Outcome) { o.Reason = "" }) },
	"a retry does not wait": func(m *mutant) { m.finish = eachOutcome(m, func(o *store.Outcome) { o.Delay = 0 }) },
	"errors are cut short": func(m *mutant) {
		m.finish = eachOutcome(m, func(o *store.Outcome) { o.Error = o.Error[:min(len(o.Error), 255)] })
	},
	"traces are dropped": func(m *mutant) {
		m.finish = eachOutcome(m, func(o *store.Outcome) { o.Trace = "" })
	},
	"fingerprints are dropped": func(m *mutant) {
		m.finish = eachOutcome(m, func(o *store.Outcome) { o.Fingerprint = "" })
	},
	"errors are dropped": func(m *mutant) {
		m.finish = eachOutcome(m, func(o *store.Outcome) { o.Error = "" })
	},
	"snoozed is retried": func(m *mutant) { m.finish = eachOutcome(m, snoozedIsRetried) },
	"the end is when it was written": func(m *mutant) {
		m.finish = eachOutcome(m, func(o *store.Outcome) { o.Ago = 0 })
	},
	"run times are not counted": func(m *mutant) {
		m.finish = eachOutcome(m, func(o *store.Outcome) { o.Ran = 0 })
	},
	"discarded is completed":            func(m *mutant) { m.finish = eachOutcome(m, discardedIsCompleted) },
	"two may finish at the same moment": func(m *mutant) { m.finish = m.checkThenFinish },

	// Lead, Admit, Rescue, Prune
	"two lead": func(m *mutant) { m.lead = m.everybodyLeads() },
	"a term never ends": func(m *mutant) {
		m.lead = leading(m, func(c *store.Candidate) { c.TTL = max(c.TTL, time.Minute) })
	},
	"leaders share an id": func(m *mutant) { m.lead = leading(m, func(c *store.Candidate) { c.ID = store.ID{1} }) },
	"a stale term may admit": func(m *mutant) {
		m.admit = func(ctx context.Context, _ int64, n int) (store.Admitted, error) {
			return m.Store.Admit(ctx, m.term(ctx), n)
		}
	},
	"a stale term may rescue": func(m *mutant) {
		m.rescue = func(ctx context.Context, _ int64, n int) ([]store.Task, error) {
			return m.Store.Rescue(ctx, m.term(ctx), n)
		}
	},
	"a stale term may prune": func(m *mutant) {
		m.prune = func(ctx context.Context, _ int64, keep store.Retention, n int) (int, error) {
			return m.Store.Prune(ctx, m.term(ctx), keep, n)
		}
	},
	"a stale term may put":     func(m *mutant) { m.put = putting(m, func(p *store.PutRecord) { p.Term = 0 }) },
	"tasks are admitted early": func(m *mutant) { m.admit = m.admitEarly },
	"admit forgets the limit": func(m *mutant) {
		m.admit = func(ctx context.Context, term int64, _ int) (store.Admitted, error) {
			return m.Store.Admit(ctx, term, 1e9)
		}
	},
	"admit names no queues":     func(m *mutant) { m.admit = m.namelessAdmit },
	"admit does not look ahead": func(m *mutant) { m.admit = m.blindAdmit },
	"a resignation is ignored": func(m *mutant) {
		m.lead = leading(m, func(c *store.Candidate) {
			if c.TTL == 0 {
				c.ID = store.ID{}
			}
		})
	},
	"anybody may resign for the leader": func(m *mutant) { m.lead = m.anybodyResigns() },
	"living workers are robbed":         func(m *mutant) { m.rescue = m.robLiving },
	"nobody is rescued": func(m *mutant) {
		m.rescue = func(ctx context.Context, term int64, n int) ([]store.Task, error) {
			_, err := m.Store.Rescue(ctx, term, n)
			return nil, err
		}
	},
	"orphans are returned once": func(m *mutant) { m.rescue = m.rescueOnce() },
	"rescue forgets the limit": func(m *mutant) {
		m.rescue = func(ctx context.Context, term int64, _ int) ([]store.Task, error) {
			return m.Store.Rescue(ctx, term, 1e9)
		}
	},
	"no queue has a retention": func(m *mutant) { m.prune = keeping(m, func(k *store.Retention) { k.Queues = nil }) },
	"zero keeps nothing":       func(m *mutant) { m.prune = keeping(m, keepNothing) },
	"all outcomes are kept alike": func(m *mutant) {
		m.prune = keeping(m, func(k *store.Retention) { k.Cancelled, k.Discarded = k.Completed, k.Completed })
	},
	"nothing is pruned": func(m *mutant) { m.prune = keeping(m, func(k *store.Retention) { *k = store.Retention{} }) },
	"prune forgets the limit": func(m *mutant) {
		m.prune = func(ctx context.Context, term int64, keep store.Retention, _ int) (int, error) {
			return m.Store.Prune(ctx, term, keep, 1e9)
		}
	},

	// Reader
	"tags do not filter":         func(m *mutant) { m.list = filtering(m, func(f *store.Filter) { f.Tags = nil }) },
	"tenants do not filter":      func(m *mutant) { m.list = filtering(m, func(f *store.Filter) { f.Tenants = nil }) },
	"fingerprints do not filter": func(m *mutant) { m.list = filtering(m, func(f *store.Filter) { f.Fingerprint = "" }) },
	"until is included":          func(m *mutant) { m.list = filtering(m, untilIncluded) },
	"every page is the first": func(m *mutant) {
		m.list = filtering(m, func(f *store.Filter) { f.Before = store.ID{} })
	},
	"oldest first": func(m *mutant) { m.list = m.listed(func(tasks []store.Task) { slices.Reverse(tasks) }) },
	"a page has no limit of its own": func(m *mutant) {
		m.list = filtering(m, func(f *store.Filter) {
			if f.Limit == 0 {
				f.Limit = store.MaxPage
			}
		})
	},
	"queues do not filter": func(m *mutant) { m.list = filtering(m, func(f *store.Filter) { f.Queues = nil }) },
	"kinds do not filter":  func(m *mutant) { m.list = filtering(m, func(f *store.Filter) { f.Kinds = nil }) },
	"keys do not filter":   func(m *mutant) { m.list = filtering(m, func(f *store.Filter) { f.Key = "" }) },
	"one tag is enough": func(m *mutant) {
		m.list = filtering(m, func(f *store.Filter) { f.Tags = f.Tags[:min(len(f.Tags), 1)] })
	},
	"detail is always shown":     func(m *mutant) { m.list = filtering(m, func(f *store.Filter) { f.Detail = true }) },
	"finished tasks are counted": func(m *mutant) { m.count = m.countFinished },
	"statistics do not know queues": func(m *mutant) {
		m.stats = func(ctx context.Context, f store.StatsFilter) ([]store.Stat, error) {
			f.Queue = ""
			return m.Store.Stats(ctx, f)
		}
	},
	"statistics do not know kinds": func(m *mutant) {
		m.stats = func(ctx context.Context, f store.StatsFilter) ([]store.Stat, error) {
			f.Kind = ""
			return m.Store.Stats(ctx, f)
		}
	},
	"statistics begin with the world": func(m *mutant) {
		m.stats = func(ctx context.Context, f store.StatsFilter) ([]store.Stat, error) {
			f.From = time.Time{}
			return m.Store.Stats(ctx, f)
		}
	},
	"buckets are minutes": func(m *mutant) {
		m.stats = func(ctx context.Context, f store.StatsFilter) ([]store.Stat, error) {
			f.Bucket = time.Minute
			return m.Store.Stats(ctx, f)
		}
	},
	"errors of all queues": func(m *mutant) { m.errors = m.failures(func(f *store.ErrorFilter) { f.Queue = "" }) },
	"errors of all kinds":  func(m *mutant) { m.errors = m.failures(func(f *store.ErrorFilter) { f.Kind = "" }) },
	"errors of all times": func(m *mutant) {
		m.errors = m.failures(func(f *store.ErrorFilter) { f.Since = time.Time{} })
	},
	"errors without limit":     func(m *mutant) { m.errors = m.failures(func(f *store.ErrorFilter) { f.Limit = 1e9 }) },
	"errors without a sample":  func(m *mutant) { m.errors = m.grouped(func(g *store.ErrorGroup) { g.Sample = "" }) },
	"workers youngest first":   func(m *mutant) { m.workers = m.youngestFirst },
	"only the latest attempt":  func(m *mutant) { m.list = m.listed(latestAttempts) },
	"a count is off by one":    func(m *mutant) { m.count = m.offByOne },
	"nothing grows old":        func(m *mutant) { m.count = m.neverOld },
	"failures are not counted": func(m *mutant) { m.stats = m.statistics(func(s *store.Stat) { s.Failed = 0 }) },
	"waits are not counted": func(m *mutant) {
		m.stats = m.statistics(func(s *store.Stat) { s.Waited = store.Durations{} })
	},
	"all kinds are one": func(m *mutant) { m.stats = m.statistics(func(s *store.Stat) { s.Kind = "k" }) },
	"there are no error groups": func(m *mutant) {
		m.errors = func(context.Context, store.ErrorFilter) ([]store.ErrorGroup, error) { return nil, nil }
	},
	"groups do not know the dead": func(m *mutant) { m.errors = m.grouped(func(g *store.ErrorGroup) { g.Dead = 0 }) },
	"groups wait for ever": func(m *mutant) {
		m.errors = m.grouped(func(g *store.ErrorGroup) { g.Waiting = g.Count })
	},
	"nobody holds anything": func(m *mutant) { m.workers = m.idleWorkers },

	// Editor
	"running tasks are edited":           func(m *mutant) { m.edit = m.editRunning },
	"finished tasks are cancelled":       func(m *mutant) { m.edit = m.cancelFinished },
	"a move changes nothing":             func(m *mutant) { m.edit = m.pretend(store.Move) },
	"a deletion changes nothing":         func(m *mutant) { m.edit = m.pretend(store.Delete) },
	"a new priority is ignored":          func(m *mutant) { m.edit = m.pretend(store.Reprioritize) },
	"a missing id stops an edit":         func(m *mutant) { m.edit = m.stopAtMissing },
	"edits are answered back to front":   func(m *mutant) { m.edit = m.answersBackToFront },
	"a cancel of the running is refused": func(m *mutant) { m.edit = m.refuseRunning },
	"a rescheduled task is due at once": func(m *mutant) {
		m.edit = editing(m, func(c *store.Change) { c.RunAt = time.Time{} })
	},
	"a cancel has no reason":   func(m *mutant) { m.edit = editing(m, func(c *store.Change) { c.Reason = "" }) },
	"a retry is never put off": func(m *mutant) { m.edit = editing(m, func(c *store.Change) { c.Delay = 0 }) },

	// Recorder
	"the last writer wins":           func(m *mutant) { m.put = m.lastWriterWins },
	"a lost race still enqueues":     func(m *mutant) { m.put = m.enqueueAnyway },
	"a record's tasks are forgotten": func(m *mutant) { m.put = putting(m, func(p *store.PutRecord) { p.Tasks = nil }) },
	"a record cannot be deleted": func(m *mutant) {
		m.put = putting(m, func(p *store.PutRecord) { p.Record.Body = append([]byte{}, p.Record.Body...) })
	},
	"records do not say when":      func(m *mutant) { m.records = m.undated },
	"a lost leader still enqueues": func(m *mutant) { m.put = m.leaderlessEnqueue },
	"records are in no order":      func(m *mutant) { m.records = m.unordered },
	"names of records do not matter": func(m *mutant) {
		m.records = m.recordsOf(func(f *store.RecordFilter) { f.Names = nil })
	},
	"pages of records begin again": func(m *mutant) {
		m.records = m.recordsOf(func(f *store.RecordFilter) { f.After = "" })
	},
	"pages of records have no limit": func(m *mutant) {
		m.records = m.recordsOf(func(f *store.RecordFilter) { f.Limit = 0 })
	},
	"all kinds of records are one kind":         func(m *mutant) { m.records, m.put = m.oneKind() },
	"the last writer of several documents wins": func(m *mutant) { m.update = m.updateAnyway },

	// Turns, Archiver, Historian
	"a turn is given twice": func(m *mutant) { m.grant = m.grantTwice },
	"a page of finished tasks has no limit": func(m *mutant) {
		m.due = func(ctx context.Context, keep store.Retention, from string, _ int) (store.Due, error) {
			return m.Store.Due(ctx, keep, from, 1e9)
		}
	},
	"a receipt for nothing": func(m *mutant) {
		m.due = func(ctx context.Context, keep store.Retention, from string, limit int) (store.Due, error) {
			due, err := m.Store.Due(ctx, keep, from, limit)
			if due.Receipt == nil {
				due.Receipt = []byte{}
			}
			return due, err
		}
	},
	"what came back is released":     func(m *mutant) { m.release = m.releaseAnyway },
	"ends that were read are kept":   func(m *mutant) { m.forget = func(context.Context, string) error { return nil } },
	"ends are kept without a reader": func(m *mutant) { m.follow = m.followAlways },
}
