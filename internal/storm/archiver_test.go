//go:build unix

package storm

import (
	"context"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"gocloud.dev/blob"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/archive"
	"github.com/tuskqueue/tusk/archive/place"
	"github.com/tuskqueue/tusk/archive/place/placetest"
	"github.com/tuskqueue/tusk/store"
)

const (
	roleArchiver = "archiver"
	archivers    = 2               // only one works at a time
	keptFor      = 2 * time.Second // how long archived tasks stay in the database
	choresEvery  = 5 * time.Second
)

// archived returns the retention of queues that are archived. Children are kept, for their parents to see, and
// discarded tasks are kept until they leave quarantine.
func archived() store.Retention {
	all := store.Retention{Completed: keptFor, Cancelled: keptFor}
	all.Queues = map[string]store.Retention{queueKept: {}}
	return all
}

// playArchiver moves finished tasks until it is killed or told to stop.
func playArchiver(p part) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	engine, closeStore, err := p.patiently(ctx)
	if err != nil {
		return err
	}
	defer closeStore()
	bucket, err := place.Open(ctx, p.Place)
	if err != nil {
		return err
	}
	defer bucket.Close()
	r, err := newRunner(engine, bucket, archived())
	if err != nil {
		return err
	}
	go func() {
		for ctx.Err() == nil { // merge files and sweep orphans now instead of once an hour
			if err := archive.RequestPrune(ctx, engine); err != nil {
				quiet.Warn("prune", "error", err)
			}
			time.Sleep(choresEvery)
		}
	}()
	return r.Run(ctx)
}

func newRunner(s store.Store, bucket *blob.Bucket, keep store.Retention) (*archive.Runner, error) {
	return archive.NewRunner(runnerOptions(s, bucket, keep))
}

func runnerOptions(s store.Store, bucket *blob.Bucket, keep store.Retention) archive.Options {
	return archive.Options{Store: s, Bucket: bucket, ID: tusk.NewID(), NewID: tusk.NewID, Log: quiet, Grace: orphanAge,
		Every: 300 * time.Millisecond, Patience: stormLease, Keep: func(context.Context) (store.Retention, error) {
			return keep, nil
		}}
}

// startArchiving starts the archivers, if the engine supports archives.
func (s *storm) startArchiving() {
	if s.objects == nil {
		return
	}
	for range archivers {
		s.fleet.start(s.role(roleArchiver))
	}
}

// openPlace starts the object store for the archive, if the engine supports archives.
func (s *storm) openPlace() {
	if _, ok := store.As[store.Archiver](s.client.Store()); ok {
		s.objects = placetest.Start(s.t, placetest.S3)
	}
}

// killObjectStore kills the object store and restarts it with its data.
func killObjectStore(s *storm) error {
	s.count("kill of the object store")
	s.objects.Kill()
	time.Sleep(time.Duration(s.random.IntN(1000)) * time.Millisecond)
	return s.objects.Again()
}

// holdObjectStore stalls all traffic of the object store for longer than archivers wait for one another.
func holdObjectStore(s *storm) error {
	s.count("stall of the object store")
	s.objects.Hold(true)
	time.Sleep(stormLease + stormLease/2)
	s.objects.Hold(false)
	return nil
}

// failObjectStore makes the object store return errors for a while.
func failObjectStore(s *storm) error {
	s.count("errors of the object store")
	s.objects.Fail(true)
	time.Sleep(time.Duration(500+s.random.IntN(4000)) * time.Millisecond)
	s.objects.Fail(false)
	return nil
}

// archived checks I22: each task is in the database or in the archive, exactly once, and the archive matches its
// manifests. Archived tasks are then checked as if they were still in the database.
func (c *checker) archived() {
	if c.objects == nil {
		return
	}
	ctx := c.t.Context()
	bucket, err := place.Open(ctx, c.objects.URL("tusk"))
	if err != nil {
		c.t.Fatal(err)
	}
	defer bucket.Close()
	c.settle(ctx, bucket)
	c.read() // settling has removed tasks
	a := archive.New(bucket, c.fleet.dir)
	manifests, err := a.Manifests(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	times, counted := map[tusk.ID][]string{}, int64(0)
	for _, m := range manifests {
		counted += m.Tasks()
		for _, f := range m.Files {
			err := a.Tasks(ctx, f, func(t store.Task) error {
				times[t.ID] = append(times[t.ID], f.Path)
				info := c.client.Describe(t)
				if _, twice := c.stored[t.ID]; twice && len(times[t.ID]) == 1 && c.counts["failover"] == 0 {
					c.violation("I22", "task %s is in the database and in the archive", t.ID)
				}
				c.stored[t.ID] = &info
				return nil
			})
			if err != nil {
				c.violation("I22", "%s cannot be read: %v", f.Path, err)
			}
		}
	}
	for id, files := range times {
		if len(files) > 1 && c.counts["failover"] == 0 {
			c.violation("I22", "task %s is in the archive %d times: %v", id, len(files), files)
		}
	}
	if sum := sumOf(times); counted != sum {
		c.violation("I22", "manifests count %d tasks, and their files have %d", counted, sum)
	}
	if len(times) == 0 {
		c.violation("I22", "nothing was archived")
	}
	v, err := a.Verify(ctx, nil)
	// A failover may lose the note that names files; they are swept after a day.
	if c.counts["failover"] > 0 {
		v.Problems = slices.DeleteFunc(v.Problems, func(p archive.Problem) bool {
			return strings.Contains(p.Text, "no manifest lists")
		})
	}
	if err != nil || len(v.Problems) > 0 {
		c.violation("I22", "the archive is damaged: %v, %v", v.Problems, err)
	}
	c.t.Logf("%d tasks of %d are in the archive, in %d batches", len(times), len(c.stored), len(manifests))
}

func sumOf(times map[tusk.ID][]string) (sum int64) {
	for _, files := range times {
		sum += int64(len(files))
	}
	return sum
}

// settle ends the batch that was in progress when the last archiver stopped.
func (c *checker) settle(ctx context.Context, bucket *blob.Bucket) {
	r, err := newRunner(c.client.Store(), bucket, store.Retention{})
	if err != nil {
		c.t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		_, err := r.Step(ctx)
		records, also := c.client.Store().Records(ctx, store.RecordFilter{Kind: "archive"})
		under := slices.ContainsFunc(records, func(r store.Record) bool { return r.Name == "batch" })
		if err == nil && also == nil && !under {
			return
		}
		if time.Now().After(end) {
			c.violation("I22", "a batch that was begun does not end: %v, %v", err, also)
			return
		}
	}
}
