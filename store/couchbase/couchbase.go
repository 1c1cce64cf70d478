// Package couchbase is the engine for Couchbase Server 7.1 and later.
//
// Couchbase changes one document at a time, by compare-and-swap, and its indexes lag. So each decision is the write of
// one document, which also records what follows from it (unit.go). Available tasks are listed in pages that are read by
// key (line.go), so no claim queries an index. Indexes serve due tasks, lists, and the sweeps that complete what a
// crash left unfinished (sweep.go). A worker's document names its leases before they are taken (worker.go). The clock
// is the server's, read from the CAS of writes (clock.go).
//
// The package may use package store, its rules, package bell and the Couchbase client.
package couchbase

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/couchbase/gocb/v2"
	"golang.org/x/sync/errgroup"

	"github.com/tuskqueue/tusk/internal/bell"
	"github.com/tuskqueue/tusk/store"
)

// Store is a queue in a scope of a Couchbase bucket.
type Store struct {
	cluster                  *gocb.Cluster
	kv                       *gocb.Bucket
	bucket, scope            string
	tasks, lines, keys, meta *gocb.Collection
	durability               gocb.DurabilityLevel // of all writes except leases, lines and beats
	queryTimeout             time.Duration
	patience                 time.Duration // how long others leave a unit to its owner
	lateBy                   time.Duration // how late a request to create a document may arrive
	learnWithin              time.Duration // how long the query service may take to learn of a new collection

	opened time.Time // has a monotonic reading
	clock  clock

	minds     minds
	lent      lent
	sums      sums
	bell      bell.Bell
	swept     atomic.Int64 // when the last sweep began; like forgot, as nanoseconds since opened
	sweepFrom atomic.Int64 // the lane at which the next sweep begins
	forgot    atomic.Int64 // when old groups of errors were last deleted

	damaged sync.Map     // errors of damaged documents that were logged
	logged  atomic.Int64 // how many errors were logged in all
	calm    sync.Map     // by worker: the number of the last beat after which it had no strays

	perDocument       atomic.Int64 // how many tasks of the last list each of its documents had
	trips             *trips
	claims, conflicts atomic.Int64
}

var (
	_ store.Store      = (*Store)(nil)
	_ store.Migrator   = (*Store)(nil)
	_ store.Maintainer = (*Store)(nil)
	_ store.Checker    = (*Store)(nil)
	_ store.Notifier   = (*Store)(nil)
	_ store.Meter      = (*Store)(nil)
	_ store.Examiner   = (*Store)(nil)
	_ store.Archiver   = (*Store)(nil)
	_ store.Restorer   = (*Store)(nil)
)

// Open connects to couchbase://user:password@host/bucket, or couchbases:// with TLS. Parameters: scope, the scope with
// Tusk's collections (default tusk); durability, which is none, majority (the default if the bucket has a replica and
// nodes for it), majorityAndPersist or persistToMajority; sasl=plain for test servers. All others go to the client.
func Open(ctx context.Context, text string) (*Store, error) {
	o, err := parse(text)
	if err != nil {
		return nil, err
	}
	cluster, bucket, err := connect(ctx, &o)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	if has := copiesOf(bucket); o.durability == gocb.DurabilityLevelUnknown && has.wanted > 0 && has.majority() {
		o.durability = gocb.DurabilityLevelMajority
	}
	scope := bucket.Scope(o.scope)
	s := &Store{
		trips:   o.trips,
		cluster: cluster, kv: bucket, bucket: o.bucket, scope: o.scope, durability: o.durability,
		queryTimeout: 30 * time.Second, patience: patience, lateBy: lateBy,
		learnWithin: 30 * time.Second,
		tasks:       scope.Collection("task"), lines: scope.Collection("line"),
		keys: scope.Collection("key"), meta: scope.Collection("meta"),
		opened: time.Now(), clock: clock{learning: make(chan struct{}, 1)},
	}
	s.sums.minutes, s.sums.every = map[int64]*minute{}, sumsEvery
	return s, nil
}

// connect connects to the cluster and its bucket. The client's query part waits for the cluster's configuration, but
// starts only after its document part has requested it. A configuration that arrives in between never reaches the query
// part, and all queries time out. connect then closes the client and opens another.
func connect(ctx context.Context, o *options) (*gocb.Cluster, *gocb.Bucket, error) {
	for try := 1; ; try++ {
		cluster, err := dial(o)
		if err != nil {
			return nil, nil, err
		}
		bucket := cluster.Bucket(o.bucket)
		ready := &gocb.WaitUntilReadyOptions{ServiceTypes: []gocb.ServiceType{gocb.ServiceTypeKeyValue}, Context: ctx}
		if err := bucket.WaitUntilReady(15*time.Second, ready); err != nil {
			_ = cluster.Close(nil)
			return nil, nil, fmt.Errorf("%w: %w", store.ErrUnavailable, err)
		}
		if try == 5 || !deaf(ctx, cluster) {
			return cluster, bucket, nil
		}
		_ = cluster.Close(nil)
	}
}

// deaf reports whether the query part of a client has missed the configuration.
func deaf(ctx context.Context, cluster *gocb.Cluster) bool {
	report, err := cluster.Ping(&gocb.PingOptions{ServiceTypes: []gocb.ServiceType{gocb.ServiceTypeQuery},
		Timeout: time.Second, Context: ctx})
	if err != nil {
		return false
	}
	for _, p := range report.Services[gocb.ServiceTypeQuery] {
		if p.Remote == "" && p.State == gocb.PingStateTimeout {
			return true
		}
	}
	return false
}

func dial(o *options) (*gocb.Cluster, error) {
	return gocb.Connect(o.connection, gocb.ClusterOptions{
		Authenticator:  gocb.PasswordAuthenticator{Username: o.user, Password: o.password},
		SecurityConfig: gocb.SecurityConfig{AllowedSaslMechanisms: o.mechanisms},
		TimeoutsConfig: gocb.TimeoutsConfig{KVTimeout: 5 * time.Second, KVDurableTimeout: 10 * time.Second,
			QueryTimeout: 30 * time.Second},
		RetryStrategy: patient{},
		// The client's observers report to its log, which nobody reads. Also, the default tracer has a data race when a
		// request is canceled.
		Tracer:               &gocb.NoopTracer{},
		Meter:                o.trips,
		OrphanReporterConfig: gocb.OrphanReporterConfig{Disabled: true},
		AppTelemetryConfig:   gocb.AppTelemetryConfig{Disabled: true},
	})
}

// Close writes the pending statistics and closes the connections.
func (s *Store) Close() error {
	s.sums.stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return errors.Join(s.writeSums(ctx), s.cluster.Close(nil))
}

// options are the settings in a database URL.
type options struct {
	connection, user, password, bucket, scope string
	durability                                gocb.DurabilityLevel
	mechanisms                                []gocb.SaslMechanism
	trips                                     *trips
}

var durabilities = map[string]gocb.DurabilityLevel{"none": gocb.DurabilityLevelNone,
	"majority":           gocb.DurabilityLevelMajority,
	"majorityAndPersist": gocb.DurabilityLevelMajorityAndPersistOnMaster,
	"persistToMajority":  gocb.DurabilityLevelPersistToMajority}

func parse(text string) (o options, err error) {
	u, err := url.Parse(text)
	if err != nil {
		return o, errors.New("the database URL cannot be read: write couchbase://user:password@host/bucket")
	}
	o.bucket, o.scope, o.trips = strings.Trim(u.Path, "/"), "tusk", &trips{}
	if o.bucket == "" || strings.Contains(o.bucket, "/") {
		return o, errors.New("the database URL names no bucket: write couchbase://user:password@host/bucket")
	}
	o.user = u.User.Username()
	o.password, _ = u.User.Password()
	q := u.Query()
	if q.Has("scope") {
		o.scope = q.Get("scope")
	}
	if level := q.Get("durability"); level != "" {
		known := false
		if o.durability, known = durabilities[level]; !known {
			return o, fmt.Errorf("the durability %q is unknown: write none, majority, majorityAndPersist or persistToMajority",
				level)
		}
	}
	if q.Get("sasl") == "plain" {
		o.mechanisms = []gocb.SaslMechanism{gocb.PlainSaslMechanism}
	}
	q.Del("scope")
	q.Del("durability")
	q.Del("sasl")
	u.User, u.Path, u.RawQuery = nil, "", q.Encode()
	o.connection = u.String()
	return o, nil
}

// says adds the verb to an error, and advice if there is any (see advised).
func says(err *error, verb string) {
	if *err != nil {
		*err = fmt.Errorf("%s: %w", verb, advised(*err))
	}
}

// each calls do for 0 to n-1, up to 32 calls at a time, and returns the first error.
func each(n int, do func(i int) error) error {
	var all errgroup.Group
	all.SetLimit(32)
	for i := range n {
		all.Go(func() error { return do(i) })
	}
	return all.Wait()
}

// tryEach does the same, and returns the result and the error of each call.
func tryEach[T any](n int, do func(i int) (T, error)) ([]T, []error) {
	results, errs := make([]T, n), make([]error, n)
	_ = each(n, func(i int) error {
		results[i], errs[i] = do(i)
		return nil
	})
	return results, errs
}

// collect does the same, and returns the result of each call and the first error.
func collect[T any](n int, do func(i int) (T, error)) ([]T, error) {
	results, errs := tryEach(n, do)
	return results, cmp.Or(errs...)
}

// grouped groups the numbers 0 to n-1 by name. The groups are in the order of their first numbers.
func grouped[K comparable](n int, name func(i int) K) (groups [][]int) {
	at := map[K]int{}
	for i := range n {
		of := name(i)
		if _, known := at[of]; !known {
			at[of] = len(groups)
			groups = append(groups, nil)
		}
		groups[at[of]] = append(groups[at[of]], i)
	}
	return groups
}

func pick[T any](all []T, places []int) (some []T) {
	for _, i := range places {
		some = append(some, all[i])
	}
	return some
}

// eachOf calls do for 0 to n-1. Those with the same name run one after another, all others concurrently.
func eachOf[K comparable](n int, name func(i int) K, do func(i int) error) error {
	chains := grouped(n, name)
	return each(len(chains), func(c int) error {
		for _, i := range chains[c] {
			if err := do(i); err != nil {
				return err
			}
		}
		return nil
	})
}

// Listen implements store.Notifier. Other processes must poll: the server has no cheap notifications.
func (s *Store) Listen(ctx context.Context, wake func(store.Hint)) error {
	return s.bell.Listen(ctx, wake)
}

// Measure implements store.Meter.
func (s *Store) Measure(context.Context) (store.Measures, error) {
	return store.Measures{ServerCPU: -1, WALBytes: -1, DeadRows: -1, RoundTrips: s.trips.Load(),
		Queries: s.claims.Load(), Conflicts: s.Conflicts()}, nil
}

// Conflicts implements store.Meter.
func (s *Store) Conflicts() int64 { return s.conflicts.Load() }

// trips counts the client's requests to the cluster, including queries. It is the client's meter, which records each
// request when it ends.
type trips struct {
	gocb.NoopMeter // for all other metrics
	atomic.Int64
}

// ValueRecorder implements gocb.Meter.
func (t *trips) ValueRecorder(name string, tags map[string]string) (gocb.ValueRecorder, error) {
	if name == "db.couchbase.operations" {
		return t, nil
	}
	return t.NoopMeter.ValueRecorder(name, tags)
}

// RecordValue implements gocb.ValueRecorder.
func (t *trips) RecordValue(uint64) { t.Add(1) }
