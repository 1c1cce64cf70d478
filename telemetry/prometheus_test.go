package telemetry_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/herald"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/mysql"
	"github.com/tuskqueue/tusk/store/mysql/mysqltest"
	"github.com/tuskqueue/tusk/store/postgres"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
	"github.com/tuskqueue/tusk/store/sqlite/sqlitefile"
	"github.com/tuskqueue/tusk/telemetry"
)

func TestMain(m *testing.M) { pgtest.Main(mysqltest.Around{Tests: m}) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

type database interface {
	store.Store
	store.Migrator
}

// target starts a process that serves metrics.
func target(t *testing.T, s database) (*tusk.Client, *telemetry.Telemetry, string) {
	t.Helper()
	_, err := s.Migrate(t.Context(), -1)
	must(t, err)
	tell := telemetry.New()
	tell.ReadEvery(time.Millisecond)
	client, err := tusk.NewClient(tell.Wrap(s), &tusk.ClientConfig{Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	tell.Watch(client)
	web := httptest.NewServer(tell.Handler())
	t.Cleanup(web.Close)
	return client, tell, strings.TrimPrefix(web.URL, "http://")
}

// elsewhere are the alerts whose faults this test does not cause.
var elsewhere = map[string]string{
	"TuskDiskFull": "made where a small disk may be mounted",
	"TuskGone":     "in deploy/prometheus/alerts_test.yml",
}

// needsPrometheus skips a test without Prometheus and its promtool, or fails it if all tests have to run.
func needsPrometheus(t *testing.T) {
	t.Helper()
	for _, program := range []string{"prometheus", "promtool"} {
		_, err := exec.LookPath(program)
		switch {
		case err == nil:
		case os.Getenv("CI") == "true" || os.Getenv("TUSK_TEST_ALL") == "1":
			t.Fatal("install Debian's package prometheus: ", err)
		default:
			t.Skip(err)
		}
	}
}

func TestARealPrometheusFindsEachMetricAndFiresEachAlert(t *testing.T) {
	needsPrometheus(t)
	targets := []string{ill(t), unreachable(t), clockOff(t), exhausted(t)}
	if full := fullDisk(t); full != "" {
		delete(elsewhere, "TuskDiskFull")
		targets = append(targets, full)
	}
	rules, err := os.ReadFile("../deploy/prometheus/alerts.yml")
	must(t, err)
	crowd(t)
	p := startPrometheus(t, hasty(string(rules)), targets)

	dashboard, err := os.ReadFile("../deploy/grafana/tusk.json")
	must(t, err)
	metric := regexp.MustCompile(`\btusk_[a-z_]+`)
	wanted := metric.FindAllString(string(rules), -1)
	var board struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	must(t, json.Unmarshal(dashboard, &board))
	for _, panel := range board.Panels {
		for _, query := range panel.Targets {
			wanted = append(wanted, metric.FindAllString(query.Expr, -1)...)
		}
	}
	slices.Sort(wanted)
	wanted = slices.Compact(wanted)
	var alerts []string
	for _, found := range regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(string(rules), -1) {
		if elsewhere[found[1]] == "" {
			alerts = append(alerts, found[1])
		}
	}
	if len(wanted) < 30 || len(alerts) < 15 {
		t.Fatalf("only %d metrics and %d alerts: %v", len(wanted), len(alerts), alerts)
	}
	var missing, silent []string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		missing, silent = without(wanted, p.names()), without(alerts, p.firing())
		if len(missing)+len(silent) == 0 {
			return
		}
	}
	t.Errorf("metrics that do not exist: %v\nalerts that do not fire: %v", missing, silent)
}

func TestTheAlertRulesFollowAHistory(t *testing.T) {
	needsPrometheus(t)
	check := exec.Command("promtool", "test", "rules", "alerts_test.yml")
	check.Dir = "../deploy/prometheus"
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func without(all, some []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(one string) bool { return slices.Contains(some, one) })
}

// hasty makes the rules fire as soon as a fault is seen, not only once it has lasted.
func hasty(rules string) string {
	rules = regexp.MustCompile(`for: \w+`).ReplaceAllString(rules, "for: 0s")
	return strings.NewReplacer("> 300", "> 0.001", "> 3600", "> 0.001", "> 120", "> 100", "> 0.1\n", "> 0\n", "[5m]",
		"[10s]").Replace(rules)
}

// ill starts a process under load, on a database with many faults.
func ill(t *testing.T) string {
	dsn := pgtest.DSN(t)
	s, err := postgres.Open(t.Context(), dsn)
	must(t, err)
	t.Cleanup(func() { s.Close() })
	client, tell, addr := target(t, s)
	work(t, client, tell)
	tell.Loops(func() map[string]time.Duration { return map[string]time.Duration{"stuck": time.Hour} })
	add(t, client, "lonely", "ok")
	add(t, client, "paused", "ok")
	must(t, client.PauseQueue(t.Context(), "paused"))
	add(t, client, "slow", "ok")
	_, err = s.Extend(t.Context(), store.Beat{Worker: store.Worker{ID: tusk.NewID(), Queues: []string{"slow"},
		Concurrency: 1}, TTL: time.Hour})
	must(t, err)
	must(t, client.PutSchedule(t.Context(),
		tusk.Schedule{Name: "nightly", Spec: "@every 1s", Args: tusk.RawArgs{Name: "ok"}}))
	records, err := s.Records(t.Context(), store.RecordFilter{Kind: "schedule"})
	must(t, err)
	r := records[0]
	r.Body = []byte(strings.Replace(string(r.Body), "{", `{"next":"`+time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)+
		`",`, 1))
	_, _, err = s.PutRecord(t.Context(), store.PutRecord{Record: r})
	must(t, err)
	_, _, err = s.PutRecord(t.Context(),
		store.PutRecord{Record: store.Record{Kind: "hook", Name: "crm", Body: []byte("{}")}})
	must(t, err)
	_, _, err = s.PutRecord(t.Context(), store.PutRecord{Record: store.Record{Kind: herald.HookState, Name: "crm",
		Body: []byte(`{"waits": "2026-01-31T12:00:00Z", "error": "it is down"}`)}})
	must(t, err)
	c, err := pgx.Connect(t.Context(), dsn)
	must(t, err)
	for _, text := range []string{
		"create table tusk.spare with (autovacuum_enabled = off) as select n from generate_series(1, 150000) n",
		"delete from tusk.spare",
	} {
		_, err = c.Exec(t.Context(), text)
		must(t, err)
	}
	must(t, c.Close(t.Context()))
	holder, err := pgx.Connect(t.Context(), dsn)
	must(t, err)
	t.Cleanup(func() { holder.Close(context.Background()) })
	_, err = holder.Exec(t.Context(), "begin; select pg_current_xact_id()")
	must(t, err)
	return addr
}

func add(t *testing.T, client *tusk.Client, queue, kind string) {
	t.Helper()
	_, err := client.Enqueue(t.Context(), tusk.RawArgs{Name: kind}, &tusk.Options{Queue: queue, MaxAttempts: 1})
	must(t, err)
}

// work runs tasks with a worker until the test ends. Some tasks are discarded.
func work(t *testing.T, client *tusk.Client, tell *telemetry.Telemetry) {
	mux := tusk.NewMux()
	tusk.HandleKind(mux, "ok", func(context.Context, *tusk.Task[json.RawMessage]) error { return nil })
	tusk.HandleKind(mux, "bad", func(context.Context, *tusk.Task[json.RawMessage]) error { return errors.New("it broke") })
	w, err := tusk.NewWorker(client, mux, &tusk.WorkerConfig{NeverLead: true})
	must(t, err)
	tell.Loops(w.Health)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- w.Run(ctx) }()
	go func() {
		for ctx.Err() == nil {
			for _, kind := range []string{"ok", "bad"} {
				_, _ = client.Enqueue(ctx, tusk.RawArgs{Name: kind}, &tusk.Options{MaxAttempts: 1})
			}
			time.Sleep(20 * time.Millisecond)
		}
		done <- nil
	}()
	t.Cleanup(func() { stop(); <-done; <-done })
}

// unreachable starts a process whose database is gone.
func unreachable(t *testing.T) string {
	s, err := postgres.Open(t.Context(), pgtest.DSN(t))
	must(t, err)
	client, _, addr := target(t, s)
	s.Close()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan bool)
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if _, err := client.Enqueue(ctx, tusk.RawArgs{Name: "ok"}, nil); err == nil {
				t.Error("a database that is gone took a task")
			}
			time.Sleep(50 * time.Millisecond)
		}
	}()
	t.Cleanup(func() { stop(); <-done })
	return addr
}

// clockOff starts a process on a database whose clock is wrong.
func clockOff(t *testing.T) string {
	dsn := mysqltest.Database(t)
	mark := "?"
	if strings.Contains(dsn, "?") {
		mark = "&"
	}
	s, err := mysql.Open(t.Context(), fmt.Sprintf("%s%stimestamp=%d", dsn, mark, time.Now().Add(time.Hour).Unix()))
	must(t, err)
	t.Cleanup(func() { s.Close() })
	_, _, addr := target(t, s)
	return addr
}

// exhausted starts a process whose handlers take all connections of its pool, one after another.
func exhausted(t *testing.T) string {
	config, err := pgxpool.ParseConfig(pgtest.DSN(t))
	must(t, err)
	config.MaxConns = 2
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	must(t, err)
	t.Cleanup(pool.Close)
	s, err := postgres.New(t.Context(), pool, postgres.Options{})
	must(t, err)
	t.Cleanup(func() { s.Close() })
	_, tell, addr := target(t, s)
	tell.ReadEvery(time.Hour) // only one read of the database, which has to wait
	ctx, stop := context.WithCancel(context.Background())
	var handlers sync.WaitGroup
	t.Cleanup(func() { stop(); handlers.Wait() })
	for range 6 {
		handlers.Go(func() {
			for ctx.Err() == nil {
				_ = pool.AcquireFunc(ctx, func(*pgxpool.Conn) error { time.Sleep(20 * time.Millisecond); return nil })
			}
		})
	}
	return addr
}

// crowd opens more than four fifths of the server's maximum number of connections.
func crowd(t *testing.T) {
	dsn := pgtest.DSN(t)
	for open, most := 0, 1; float64(open) <= 0.8*float64(most); {
		c, err := pgx.Connect(t.Context(), dsn)
		must(t, err)
		t.Cleanup(func() { c.Close(context.Background()) })
		must(t,
			c.QueryRow(t.Context(),
				"select count(*), current_setting('max_connections')::int from pg_stat_activity where backend_type = "+
					"'client backend'").Scan(&open, &most))
	}
}

// fullDisk starts a process whose database is on a full disk. It returns an empty text if it
// cannot make such a disk.
func fullDisk(t *testing.T) string {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Logf("NOT TESTED: a small disk takes the right to mount one: %v", err)
		return ""
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	s, err := sqlitefile.Open(t.Context(), "sqlite:"+filepath.Join(dir, "tusk.db"))
	must(t, err)
	t.Cleanup(func() { s.Close() })
	_, _, addr := target(t, s)
	file, err := os.Create(filepath.Join(dir, "ballast"))
	must(t, err)
	defer file.Close()
	for err == nil {
		_, err = file.Write(make([]byte, 64<<10))
	}
	return addr
}

// server is a Prometheus server.
type server struct {
	t   *testing.T
	url string
}

func startPrometheus(t *testing.T, rules string, targets []string) *server {
	t.Helper()
	dir := t.TempDir()
	config := fmt.Sprintf("global: {scrape_interval: 500ms, evaluation_interval: 500ms}\nrule_files: [rules.yml]\n"+
		"scrape_configs: [{job_name: tusk, static_configs: [{targets: ['%s']}]}]\n", strings.Join(targets, "', '"))
	must(t, os.WriteFile(filepath.Join(dir, "rules.yml"), []byte(rules), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600))
	check := exec.Command("promtool", "check", "config", filepath.Join(dir, "prometheus.yml"))
	if out, err := check.CombinedOutput(); err != nil {
		t.Fatalf("%s", out)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	addr := l.Addr().String()
	l.Close()
	log, err := os.Create(filepath.Join(dir, "log"))
	must(t, err)
	defer log.Close()
	cmd := exec.Command("prometheus", "--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr)
	cmd.Stdout, cmd.Stderr = log, log
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if text, err := os.ReadFile(filepath.Join(dir, "log")); t.Failed() && err == nil {
			t.Logf("%s", text)
		}
	})
	return &server{t, "http://" + addr}
}

// get calls the API. It does nothing if the server is not up yet.
func (s *server) get(path string, into any) {
	s.t.Helper()
	r, err := http.Get(s.url + path)
	if err != nil {
		return
	}
	defer r.Body.Close()
	if text, err := io.ReadAll(r.Body); err == nil && r.StatusCode == http.StatusOK {
		must(s.t, json.Unmarshal(text, into))
	}
}

func (s *server) names() []string {
	var a struct{ Data []string }
	s.get("/api/v1/label/__name__/values", &a)
	return a.Data
}

func (s *server) firing() (names []string) {
	var a struct {
		Data struct {
			Alerts []struct {
				State  string
				Labels map[string]string
			}
		}
	}
	s.get("/api/v1/alerts", &a)
	for _, one := range a.Data.Alerts {
		if one.State == "firing" {
			names = append(names, one.Labels["alertname"])
		}
	}
	return names
}
