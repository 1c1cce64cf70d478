package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store/postgres"
)

// order is the args of an archived task: 300 bytes of JSON that vary from task to task like the
// data of a shop.
type order struct {
	Order    int64   `json:"order"`
	Customer int64   `json:"customer"`
	Email    string  `json:"email"`
	Total    float64 `json:"total"`
	Items    []item  `json:"items"`
	Template string  `json:"template"`
	Locale   string  `json:"locale"`
	Note     string  `json:"note"`
}

type item struct {
	SKU string `json:"sku"`
	N   int    `json:"n"`
}

func (order) Kind() string { return "order" }

func orderOf(i int) order {
	r := uint64(i+1) * 0x9e3779b97f4a7c15 // mixes the number's bits
	customer := int64(r % 10_000_000)
	return order{Order: 7_000_000_000 + int64(i), Customer: customer,
		Email: fmt.Sprintf("user-%07d@example.com", customer), Total: float64(r>>20%100_000) / 100,
		Items: []item{{fmt.Sprintf("SKU-%05d", r>>8%50_000), int(r >> 40 % 4)},
			{fmt.Sprintf("SKU-%05d", r>>16%50_000), 1}},
		Template: "order-shipped-v2", Locale: "en-GB",
		Note: "thank you for your order, it has left our house and is on its way"}
}

// archived measures how finished tasks are moved into files by the installed program: alone, and
// while others work.
func archived(ctx context.Context, b *bench) (bars []bar, err error) {
	dir, err := os.MkdirTemp("", "tusk-archive-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "tusk")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd/tusk")
	build.Dir, build.Stderr = "..", os.Stderr
	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("build: %w", err)
	}
	tasks := b.tasks
	if tasks == 0 {
		tasks = b.size(1_000_000, 10_000_000)
	}
	var speeds, memories, sizes, beside []float64
	for round := range b.pairs {
		place := filepath.Join(dir, fmt.Sprint(round)) // each database needs its own place
		f, err := archiveAlone(ctx, b, program, place, tasks)
		if err != nil {
			return nil, err
		}
		speeds, memories, sizes = append(speeds, f.speed), append(memories, f.memory), append(sizes, f.size)
		ratio, err := archiveBeside(ctx, b, program, place+"-beside", tasks)
		if err != nil {
			return nil, err
		}
		beside = append(beside, ratio)
		fmt.Fprintf(os.Stderr,
			"archive, round %d: %.0f tasks/s, %.0f MiB, %.3f of the size, work beside at %.2f of its speed\n", round+1, f.speed,
			f.memory, f.size, ratio)
		for _, used := range []string{place, place + "-beside"} {
			if err := os.RemoveAll(used); err != nil {
				return nil, err
			}
		}
	}
	return []bar{
		atLeast(150_000, median(speeds), "tasks/s archived, alone, until they are deleted", "%d tasks of 300 bytes", tasks),
		atMost(128, median(memories), "MiB that tusk serve --archive took at most", "%d tasks", tasks),
		atMost(0.2, median(sizes), "bytes in the archive, of those in the database", "%d tasks", tasks),
		atLeast(0.9, median(beside), "tasks/s that others do beside, of those without", "%d rounds", b.pairs),
	}, nil
}

type archiveFigure struct{ speed, memory, size float64 }

func archiveAlone(ctx context.Context, b *bench, program, place string, tasks int) (f archiveFigure, err error) {
	client, err := archivable(ctx, b.pool)
	if err != nil {
		return f, err
	}
	empty, err := schemaSize(ctx, b.pool)
	if err != nil {
		return f, err
	}
	if err := finishOrders(ctx, b.pool, client, tasks); err != nil {
		return f, err
	}
	full, err := schemaSize(ctx, b.pool)
	if err != nil {
		return f, err
	}
	meter, err := postgres.New(ctx, b.pool, postgres.Options{})
	if err != nil {
		return f, err
	}
	before, err := used(ctx, meter)
	if err != nil {
		return f, err
	}
	begun := time.Now()
	archiver, err := startArchiver(ctx, b.pool, program, place)
	if err != nil {
		return f, err
	}
	defer archiver.stop()
	for moved := 0; moved < tasks; time.Sleep(50 * time.Millisecond) {
		if moved, err = archiver.moved(ctx); err != nil {
			return f, err
		}
	}
	f.speed = float64(tasks) / time.Since(begun).Seconds()
	after, err := used(ctx, meter)
	if err != nil {
		return f, err
	}
	f.memory = archiver.stop()
	fmt.Fprintf(os.Stderr, "archive: CPU for a task: %.2f us of the server, %.2f us of tusk serve; %.0f tasks/s alone\n",
		micros(after.cpu-before.cpu)/float64(tasks),
		micros(archiver.cmd.ProcessState.UserTime()+archiver.cmd.ProcessState.SystemTime())/float64(tasks), f.speed)
	written, err := folderSize(place)
	f.size = float64(written) / float64(full-empty)
	fmt.Fprintf(os.Stderr, "archive: %.0f bytes a task in the database, %.0f in the archive\n",
		float64(full-empty)/float64(tasks), float64(written)/float64(tasks))
	return f, err
}

// archiveBeside returns the ratio of how fast others work while their finished tasks are archived
// to how fast they work before and after. It fails if nothing was being archived meanwhile.
func archiveBeside(ctx context.Context, b *bench, program, place string, tasks int) (float64, error) {
	client, err := archivable(ctx, b.pool)
	if err != nil {
		return 0, err
	}
	if err := finishOrders(ctx, b.pool, client, tasks); err != nil {
		return 0, err
	}
	others, err := startOthers(ctx, client)
	if err != nil {
		return 0, err
	}
	lasts := time.Duration(b.size(20, 60)) * time.Second
	rates, written, err := besideOthers(ctx, b, program, place, others, lasts)
	if err := errors.Join(err, others.stop(ctx)); err != nil {
		return 0, err
	}
	fmt.Fprintf(os.Stderr, "archive: %.0f tasks/s before, %.0f beside, %.0f after, and %d KiB were written meanwhile\n",
		rates[0], rates[1], rates[2], written>>10)
	return 2 * rates[1] / (rates[0] + rates[2]), nil
}

// besideOthers returns how fast others work before, while and after tasks are archived, and how
// much archiving wrote to the disk meanwhile.
func besideOthers(
	ctx context.Context, b *bench, program, place string, others *workload, lasts time.Duration,
) (rates [3]float64, written int64, err error) {
	others.rate(2*time.Second, nil) // connections, plans
	if rates[0], err = besideServer(ctx, b, program, others, lasts); err != nil {
		return rates, 0, err
	}
	archiver, err := startArchiver(ctx, b.pool, program, place)
	if err != nil {
		return rates, 0, err
	}
	defer archiver.stop()
	for tries := 0; ; tries++ { // tasks that have just ended are archived a little later than the rest
		var took time.Duration
		if rates[1], written, took, err = besideBatch(ctx, archiver, others, lasts); err != nil {
			return rates, 0, err
		}
		if took >= lasts/2 && written > 0 {
			break
		}
		if tries == 5 {
			return rates, 0,
				fmt.Errorf("archiving wrote %d bytes in %v beside others, who were watched for %v: that says nothing", written,
					took, lasts)
		}
	}
	archiver.stop()
	rates[2], err = besideServer(ctx, b, program, others, lasts)
	return rates, written, err
}

// besideServer returns how fast others work beside a tusk serve that archives nothing.
func besideServer(
	ctx context.Context, b *bench, program string, others *workload, lasts time.Duration,
) (float64, error) {
	server := exec.CommandContext(ctx, program, "serve", "--addr", "127.0.0.1:0", "--db", b.pool.Config().ConnString())
	if err := server.Start(); err != nil {
		return 0, err
	}
	others.rate(2*time.Second, nil) // time for it to start
	rate := others.rate(lasts, nil)
	return rate, errors.Join(server.Process.Signal(syscall.SIGTERM), server.Wait())
}

// besideBatch returns how fast others work from when a batch is under way until it ends, or until
// most has passed. It also returns what archiving wrote to the disk meanwhile, and how long that
// took.
func besideBatch(
	ctx context.Context, a *archiver, others *workload, most time.Duration,
) (rate float64, written int64, took time.Duration, err error) {
	if err := a.await(ctx, true); err != nil {
		return 0, 0, 0, err
	}
	ended := make(chan struct{})
	watching, done := context.WithCancel(ctx)
	defer done()
	go func() {
		defer close(ended)
		_ = a.await(watching, false)
	}()
	before, err := a.written()
	if err != nil {
		return 0, 0, 0, err
	}
	begun := time.Now()
	rate = others.rate(most, ended)
	took = time.Since(begun)
	after, err := a.written()
	return rate, after - before, took, err
}

// archivable creates a schema whose queue "default" is archived.
func archivable(ctx context.Context, pool *pgxpool.Pool) (*tusk.Client, error) {
	client, err := fresh(ctx, pool, postgres.Options{})
	if err != nil {
		return nil, err
	}
	yes := true
	return client, client.SetArchive(ctx, "default", &yes)
}

// finishOrders enqueues orders and completes them.
func finishOrders(ctx context.Context, pool *pgxpool.Pool, client *tusk.Client, n int) error {
	const batch = 1000
	begun := time.Now()
	var handled atomic.Int64
	mux := tusk.NewMux()
	tusk.HandleFunc(mux, func(context.Context, order) error {
		handled.Add(1)
		return nil
	})
	worker, err := tusk.NewWorker(client, mux, &tusk.WorkerConfig{Concurrency: 16, ReadAhead: batch})
	if err != nil {
		return err
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	var group errgroup.Group
	group.Go(func() error { return worker.Run(working) })
	for made := 0; made < n; made += batch {
		all := make([]tusk.NewTask, min(batch, n-made))
		for i := range all {
			all[i] = tusk.NewTask{Args: orderOf(made + i)}
		}
		if _, err := client.EnqueueMany(ctx, all); err != nil {
			return errors.Join(err, group.Wait())
		}
	}
	for handled.Load() < int64(n) && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	stop()
	if err := group.Wait(); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "archive: %d orders finished in %v\n", n, time.Since(begun).Round(time.Second))
	time.Sleep(2 * time.Second) // their retention ends
	engine, ok := client.Store().(*postgres.Store)
	if !ok {
		return fmt.Errorf("the engine is a %T", client.Store())
	}
	for range 3 { // no transaction may have missed their ends
		if _, err := pool.Exec(ctx, "select "+engine.FunctionSchema()+".over()"); err != nil {
			return err
		}
	}
	_, err = pool.Exec(ctx, "checkpoint")
	return err
}

// workload produces and consumes in a queue that is not archived, until it is stopped.
type workload struct {
	made, handled atomic.Int64
	enough, end   context.CancelFunc // end producing, end working
	producers     errgroup.Group
	workers       errgroup.Group
}

func startOthers(ctx context.Context, client *tusk.Client) (*workload, error) {
	const batch = 500
	w := &workload{}
	mux := tusk.NewMux()
	tusk.HandleFunc(mux, func(ctx context.Context, t work) error {
		w.handled.Add(1)
		return handle(ctx, t)
	})
	worker, err := tusk.NewWorker(client, mux, &tusk.WorkerConfig{Queues: []string{"beside"}, Concurrency: 16,
		ReadAhead: batch})
	if err != nil {
		return nil, err
	}
	working, end := context.WithCancel(ctx)
	producing, enough := context.WithCancel(ctx)
	w.end, w.enough = end, enough
	w.workers.Go(func() error { return worker.Run(working) })
	w.producers.Go(func() error {
		for producing.Err() == nil {
			if w.made.Load()-w.handled.Load() > mostWaiting*batch {
				time.Sleep(time.Millisecond)
				continue
			}
			if err := enqueue(ctx, client, "beside", batch); err != nil {
				return err
			}
			w.made.Add(batch)
		}
		return nil
	})
	return w, nil
}

// rate returns how many tasks per second are done, for so long or until ended is closed.
func (w *workload) rate(lasts time.Duration, ended <-chan struct{}) float64 {
	begun, before := time.Now(), w.handled.Load()
	select {
	case <-time.After(lasts):
	case <-ended:
	}
	return float64(w.handled.Load()-before) / time.Since(begun).Seconds()
}

// stop ends production, and waits until everything produced is done.
func (w *workload) stop(ctx context.Context) error {
	w.enough()
	err := w.producers.Wait()
	for err == nil && ctx.Err() == nil && w.handled.Load() < w.made.Load() {
		time.Sleep(time.Millisecond)
	}
	w.end()
	return errors.Join(err, w.workers.Wait())
}

// archiver is a tusk serve --archive.
type archiver struct {
	pool        *pgxpool.Pool
	cmd         *exec.Cmd
	place, temp string // where files are, and where incomplete files are
}

func startArchiver(ctx context.Context, pool *pgxpool.Pool, program, place string) (*archiver, error) {
	a := &archiver{pool: pool, place: place, temp: place + "-temp",
		cmd: exec.CommandContext(ctx, program, "serve", "--addr", "127.0.0.1:0", "--db", pool.Config().ConnString(),
			"--archive", "file://"+filepath.ToSlash(place), "--keep-completed", "1s")}
	for _, dir := range []string{a.place, a.temp} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	a.cmd.Env = append(os.Environ(), "TMPDIR="+a.temp)
	var log strings.Builder
	a.cmd.Stderr = &log
	return a, a.cmd.Start()
}

// await waits until a batch is under way, or until none is.
func (a *archiver) await(ctx context.Context, under bool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		var is bool
		var failing string
		// A record with a change describes a change of files, not a batch.
		err := a.pool.QueryRow(ctx, `select exists (
				select from tusk.record where kind = 'archive' and name = 'batch'
				and convert_from(body, 'UTF8')::json->>'change' is null),
			coalesce((
				select convert_from(body, 'UTF8')::json->>'failing' from tusk.record
				where kind = 'archive' and name = 'status'), '')`).Scan(&is, &failing)
		switch {
		case err != nil:
			return err
		case failing != "":
			return errors.New(failing)
		case is == under:
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// written returns how many bytes it has on the disk.
func (a *archiver) written() (int64, error) {
	whole, err := folderSize(a.place)
	if err != nil {
		return 0, err
	}
	waiting, err := folderSize(a.temp)
	return whole + waiting, err
}

// moved returns how many tasks have been archived and deleted.
func (a *archiver) moved(ctx context.Context) (n int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	err = a.pool.QueryRow(ctx,
		"select coalesce((convert_from(body, 'UTF8')::json->>'tasks')::int, 0) from tusk.record where kind = 'archive' "+
			"and name = 'status'").Scan(&n)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	return n, err
}

// stop ends it, and returns its peak memory in MiB.
func (a *archiver) stop() float64 {
	if a.cmd.ProcessState == nil {
		_ = a.cmd.Process.Signal(syscall.SIGTERM)
		_ = a.cmd.Wait()
	}
	u, ok := a.cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	return float64(u.Maxrss) / 1024
}

// schemaSize returns the size of Tusk's schema in the database, in bytes.
func schemaSize(ctx context.Context, pool *pgxpool.Pool) (size int64, err error) {
	err = pool.QueryRow(ctx,
		"select sum(pg_total_relation_size(oid)) from pg_class where relnamespace = 'tusk'::regnamespace and relkind "+
			"in ('r', 'p')").Scan(&size)
	return size, err
}

func folderSize(dir string) (size int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			var info fs.FileInfo
			if info, err = d.Info(); err == nil {
				size += info.Size()
			}
		}
		if errors.Is(err, fs.ErrNotExist) { // it was deleted meanwhile
			return nil
		}
		return err
	})
	return size, err
}
