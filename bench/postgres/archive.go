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

// order is the args of a task that is archived: 300 bytes of JSON, in which what shops write
// differs from task to task.
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
	return order{Order: 7_000_000_000 + int64(i), Customer: customer, Email: fmt.Sprintf("user-%07d@example.com", customer), Total: float64(r>>20%100_000) / 100,
		Items:    []item{{fmt.Sprintf("SKU-%05d", r>>8%50_000), int(r >> 40 % 4)}, {fmt.Sprintf("SKU-%05d", r>>16%50_000), 1}},
		Template: "order-shipped-v2", Locale: "en-GB", Note: "thank you for your order, it has left our house and is on its way"}
}

// archived moves finished tasks into files, by the program as it is installed: alone, and while
// others work.
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
		place := filepath.Join(dir, fmt.Sprint(round))
		f, err := archiveAlone(ctx, b, program, place, tasks)
		if err != nil {
			return nil, err
		}
		speeds, memories, sizes = append(speeds, f.speed), append(memories, f.memory), append(sizes, f.size)
		ratio, err := archiveBeside(ctx, b, program, place, tasks)
		if err != nil {
			return nil, err
		}
		beside = append(beside, ratio)
		fmt.Fprintf(os.Stderr, "archive, round %d: %.0f tasks/s, %.0f MiB, %.3f of the size, work beside at %.2f of its speed\n", round+1, f.speed, f.memory, f.size, ratio)
		if err := os.RemoveAll(place); err != nil {
			return nil, err
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
	meter, err := postgres.New(b.pool, postgres.Options{})
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
	fmt.Fprintf(os.Stderr, "archive: CPU for a task: %.2f us of the server, %.2f us of tusk serve; %.0f tasks/s alone\n", micros(after.cpu-before.cpu)/float64(tasks),
		micros(archiver.cmd.ProcessState.UserTime()+archiver.cmd.ProcessState.SystemTime())/float64(tasks), f.speed)
	written, err := folderSize(place)
	f.size = float64(written) / float64(full-empty)
	fmt.Fprintf(os.Stderr, "archive: %.0f bytes a task in the database, %.0f in the archive\n", float64(full-empty)/float64(tasks), float64(written)/float64(tasks))
	return f, err
}

// archiveBeside returns how fast others work while what they finished before is archived, of how
// fast they do without that.
func archiveBeside(ctx context.Context, b *bench, program, place string, tasks int) (float64, error) {
	client, err := archivable(ctx, b.pool)
	if err != nil {
		return 0, err
	}
	if err := finishOrders(ctx, b.pool, client, tasks); err != nil {
		return 0, err
	}
	lasts := time.Duration(b.size(8, 60)) * time.Second
	if _, err := workFor(ctx, client, 2*time.Second); err != nil { // connections, plans
		return 0, err
	}
	alone, err := workFor(ctx, client, lasts)
	if err != nil {
		return 0, err
	}
	archiver, err := startArchiver(ctx, b.pool, program, place)
	if err != nil {
		return 0, err
	}
	defer archiver.stop()
	with, err := workFor(ctx, client, lasts)
	if err != nil {
		return 0, err
	}
	moved, err := archiver.moved(ctx)
	fmt.Fprintf(os.Stderr, "archive: %d tasks/s alone, %d beside, and %d were archived meanwhile\n", int(float64(alone)/lasts.Seconds()), int(float64(with)/lasts.Seconds()), moved)
	return float64(with) / float64(alone), err
}

// archivable makes a schema whose queue "default" is archived.
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
	time.Sleep(2 * time.Second) // their retention is over
	engine, ok := client.Store().(*postgres.Store)
	if !ok {
		return fmt.Errorf("the engine is a %T", client.Store())
	}
	for range 3 { // and no transaction has missed their ends
		if _, err := pool.Exec(ctx, "select "+engine.FunctionSchema()+".over()"); err != nil {
			return err
		}
	}
	_, err = pool.Exec(ctx, "checkpoint")
	return err
}

// workFor produces and consumes in a queue that is not archived, and returns how much.
func workFor(ctx context.Context, client *tusk.Client, lasts time.Duration) (int, error) {
	const batch = 500
	var made, handled atomic.Int64
	mux := tusk.NewMux()
	tusk.HandleFunc(mux, func(ctx context.Context, w work) error {
		handled.Add(1)
		return handle(ctx, w)
	})
	worker, err := tusk.NewWorker(client, mux, &tusk.WorkerConfig{Queues: []string{"beside"}, Concurrency: 16, ReadAhead: batch})
	if err != nil {
		return 0, err
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	var workers, producers errgroup.Group
	workers.Go(func() error { return worker.Run(working) })
	ends := time.Now().Add(lasts)
	producers.Go(func() error {
		for time.Now().Before(ends) {
			for made.Load()-handled.Load() > mostWaiting*batch {
				time.Sleep(time.Millisecond)
			}
			if err := enqueue(ctx, client, "beside", batch); err != nil {
				return err
			}
			made.Add(batch)
		}
		return nil
	})
	err = producers.Wait()
	done := int(handled.Load())
	for err == nil && handled.Load() < made.Load() && ctx.Err() == nil { // none is left for the next
		time.Sleep(time.Millisecond)
	}
	stop()
	return done, errors.Join(err, workers.Wait())
}

// archiver is a tusk serve --archive.
type archiver struct {
	pool *pgxpool.Pool
	cmd  *exec.Cmd
}

func startArchiver(ctx context.Context, pool *pgxpool.Pool, program, place string) (*archiver, error) {
	a := &archiver{pool: pool, cmd: exec.CommandContext(ctx, program, "serve", "--addr", "127.0.0.1:0", "--db", pool.Config().ConnString(),
		"--archive", "file://"+filepath.ToSlash(place), "--keep-completed", "1s")}
	var log strings.Builder
	a.cmd.Stderr = &log
	return a, a.cmd.Start()
}

// moved is how many tasks have been archived and deleted.
func (a *archiver) moved(ctx context.Context) (n int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	err = a.pool.QueryRow(ctx, "select coalesce((convert_from(body, 'UTF8')::json->>'tasks')::int, 0) from tusk.record where kind = 'archive' and name = 'status'").Scan(&n)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	return n, err
}

// stop ends it, and returns how many MiB it had in memory at most.
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

// schemaSize is what Tusk takes in the database.
func schemaSize(ctx context.Context, pool *pgxpool.Pool) (size int64, err error) {
	err = pool.QueryRow(ctx, "select sum(pg_total_relation_size(oid)) from pg_class where relnamespace = 'tusk'::regnamespace and relkind in ('r', 'p')").Scan(&size)
	return size, err
}

func folderSize(dir string) (size int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			size += info.Size()
		}
		return err
	})
	return size, err
}
