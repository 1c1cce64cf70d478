package couchbase

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/couchbase/gocb/v2"

	"github.com/tuskqueue/tusk/internal/cbfake"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/storetest"
)

// The loop of "Timed tasks with Couchbase and Go": a query finds due tasks that the index does not know as locked, as
// many as there are consumers. A consumer locks the first one that it can, works, and removes it with the lock's CAS.
// The article's condition META().cas <> -1 is omitted: a lock is not a write, so the index never learns of one, and the
// condition always holds.
const (
	articleIndex = "CREATE INDEX `article` IF NOT EXISTS ON `bucket`.`tusk`.`line`(`ExecuteAt`)"
	articleQuery = "SELECT RAW META(t).id FROM `bucket`.`tusk`.`line` AS t" +
		" WHERE t.ExecuteAt <= $now ORDER BY t.ExecuteAt LIMIT $n"
)

// spent is what some tasks cost, per task.
type spent struct{ requests, queries, lost float64 }

func (s spent) String() string {
	return fmt.Sprintf("%.1f requests, %.1f queries and %.1f locks or claims in vain a task", s.requests, s.queries,
		s.lost)
}

// of divides what a fake has counted while do ran by the number of tasks.
func of(f *cbfake.Cluster, tasks int, do func() (lost int64)) spent {
	requests, queries := f.Requests(), f.Queries()
	lost, n := do(), float64(tasks)
	return spent{float64(f.Requests()-requests) / n, float64(f.Queries()-queries) / n, float64(lost) / n}
}

// What a task costs in the article's loop and here, with the same number of consumers on the same server.
func TestRequestsBesideTheArticle(t *testing.T) {
	// With so few tasks, the first clashes weigh more than with many.
	tasks := 640
	if os.Getenv("TUSK_TEST_LONG") != "" {
		tasks = 1280
	}
	for _, consumers := range []int{1, 4, 16} {
		t.Run(fmt.Sprintf("%d consumers", consumers), func(t *testing.T) {
			r := newRig(t, 1)
			r.must("create the index", r.b.define(r.ctx(), articleIndex))
			loop := of(r.f, tasks, func() int64 { return r.article(tasks, consumers) })
			one := of(r.f, tasks, func() int64 { return r.workers(tasks, 1, consumers) })
			twenty := of(r.f, tasks, func() int64 { return r.workers(tasks, 20, consumers) })
			t.Logf("article: %v; one by one: %v; batches of 20: %v", loop, one, twenty)
			if consumers < 16 {
				return
			}
			if twenty.requests > loop.requests/2 || one.queries+twenty.queries > 0 || loop.queries < 1 {
				t.Errorf("in batches of 20: %v; the article: %v", twenty, loop)
			}
		})
	}
}

// article runs the article's loop and returns how many locks were refused.
func (r *rig) article(tasks, consumers int) int64 {
	due := time.Now().UnixMilli()
	for i := range tasks {
		_, err := r.b.lines.Insert(fmt.Sprintf("article-%d", i), map[string]any{"Id": i, "ExecuteAt": due + int64(i)},
			&gocb.InsertOptions{Context: r.ctx()})
		r.must("insert", err)
	}
	time.Sleep(time.Duration(tasks) * time.Millisecond) // now all are due
	var done, lost atomic.Int64
	var all sync.WaitGroup
	for range consumers {
		all.Go(func() {
			for done.Load() < int64(tasks) && !r.Failed() {
				if err := r.articleRound(consumers, &done, &lost); err != nil {
					r.Errorf("the article's loop: %v", err)
				}
			}
		})
	}
	all.Wait()
	return lost.Load()
}

func (r *rig) articleRound(consumers int, done, lost *atomic.Int64) error {
	ids, err := query[string](r.ctx(), r.b, articleQuery, args{"now": time.Now().UnixMilli(), "n": consumers})
	if err != nil {
		return err
	}
	if len(ids) == 0 {
		time.Sleep(time.Millisecond)
	}
	for _, id := range ids {
		got, err := r.b.lines.GetAndLock(id, 15*time.Second, nil)
		if errors.Is(err, gocb.ErrDocumentLocked) || errors.Is(err, gocb.ErrDocumentNotFound) {
			lost.Add(1)
			continue
		}
		if err == nil {
			_, err = r.b.lines.Remove(id, &gocb.RemoveOptions{Cas: got.Cas()})
		}
		if err == nil {
			done.Add(1)
		}
		return err
	}
	return nil
}

// workers enqueues tasks in batches and runs them with workers on handles of their own. It returns how many claims met
// another one.
func (r *rig) workers(tasks, batch, consumers int) int64 {
	handles := make([]*Store, consumers)
	for i := range handles {
		handles[i] = openFake(r, r.f)
		handles[i].sums.every = time.Hour // they cost one request a second, however many tasks there are
	}
	for range tasks / batch {
		some := make([]store.NewTask, batch)
		for i := range some {
			some[i] = store.NewTask{ID: storetest.NewID(), Kind: "k", Queue: "q", Args: []byte("1")}
		}
		r.add(some...)
	}
	var done, lost atomic.Int64
	var all sync.WaitGroup
	for _, s := range handles {
		all.Go(func() {
			me := storetest.NewID()
			r.beat(s, me, time.Hour)
			for done.Load() < int64(tasks) && !r.Failed() {
				got, err := s.Claim(r.ctx(), store.ClaimRequest{Worker: me, Queues: []string{"q"}, Limit: batch,
					Token: store.NewToken()})
				if err != nil {
					r.Errorf("claim: %v", err)
					return
				}
				if len(got) == 0 {
					time.Sleep(time.Millisecond)
					continue
				}
				outcomes := make([]store.Outcome, len(got))
				for i := range got {
					outcomes[i] = store.Outcome{Task: &got[i], State: store.Completed, Attempt: got[i].Attempt}
				}
				if _, err := s.Finish(r.ctx(), outcomes); err != nil {
					r.Errorf("finish: %v", err)
				}
				done.Add(int64(len(got)))
			}
			lost.Add(s.conflicts.Load())
		})
	}
	all.Wait()
	return lost.Load()
}
