package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"golang.org/x/sync/errgroup"

	"github.com/tuskqueue/tusk/store/mysql"
	"github.com/tuskqueue/tusk/store/mysql/mysqltest"
)

// figure is the result of one run.
type figure struct {
	TasksPerS float64 `json:"tasks_per_s"`
	ServerCPU float64 `json:"server_cpu_us_per_task"`
	ClientCPU float64 `json:"client_cpu_us_per_task"`
	Trips     float64 `json:"round_trips_per_task"` // for Tusk
	Deadlocks int64   `json:"deadlocks"`
}

// used is what has been used so far.
type used struct {
	server, client time.Duration
	trips          int64
	deadlocks      int64
}

// measure runs a contender once: it fills the queue and then empties it.
func measure(ctx context.Context, server *mysqltest.Server, c contender, o *options) (figure, error) {
	if err := c.fill(ctx, o.tasks); err != nil {
		return figure{}, err
	}
	before, err := usage(ctx, server, c)
	if err != nil {
		return figure{}, err
	}
	begun := time.Now()
	done, err := drain(ctx, c, o, func(done int64) bool { return done < int64(o.tasks) })
	if err != nil {
		return figure{}, err
	}
	took := time.Since(begun)
	after, err := usage(ctx, server, c)
	n := float64(done)
	return figure{n / took.Seconds(), float64((after.server - before.server).Microseconds()) / n,
		float64((after.client - before.client).Microseconds()) / n,
		float64(after.trips-before.trips) / n, after.deadlocks - before.deadlocks}, err
}

// drain runs workers, and the leader's chores beside them, until goOn reports false.
func drain(ctx context.Context, c contender, o *options, goOn func(done int64) bool) (int64, error) {
	var done atomic.Int64
	chores, stop := context.WithCancel(ctx)
	var leader, workers errgroup.Group
	leader.Go(func() error { return everySecond(chores, c.chores) })
	for i := range o.workers {
		work, err := c.worker(ctx, i, o.batch)
		if err != nil {
			stop()
			return 0, err
		}
		workers.Go(func() error {
			for goOn(done.Load()) && ctx.Err() == nil {
				n, err := work()
				if said := (*driver.MySQLError)(nil); errors.As(err, &said) && said.Number == 1213 {
					continue // the server counts it
				}
				if err != nil {
					return err
				}
				if n == 0 {
					time.Sleep(time.Millisecond)
				}
				done.Add(int64(n))
			}
			return nil
		})
	}
	err := workers.Wait()
	stop()
	return done.Load(), errors.Join(err, leader.Wait())
}

func everySecond(ctx context.Context, do func(context.Context) error) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := do(ctx); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
}

// soak keeps a queue filled and emptied for a while, and fails if there is a deadlock.
func soak(ctx context.Context, server *mysqltest.Server, o *options) error {
	name := fmt.Sprintf("tusk_bench_%d", os.Getpid())
	dsn, err := server.Create(name)
	if err != nil {
		return err
	}
	defer server.Drop(name)
	e := &engine{history: o.history}
	if err := e.open(ctx, dsn, o.workers); err != nil {
		return err
	}
	defer e.close()
	before, err := usage(ctx, server, e)
	if err != nil {
		return err
	}
	end := time.Now().Add(o.soak)
	var stored atomic.Int64
	var producers errgroup.Group
	var emptied atomic.Int64
	for range 2 {
		producers.Go(func() error {
			for time.Now().Before(end) && ctx.Err() == nil {
				if stored.Load()-emptied.Load() > int64(o.tasks) {
					time.Sleep(time.Millisecond)
					continue
				}
				if err := e.fill(ctx, 500); err != nil {
					return err
				}
				stored.Add(500)
			}
			return nil
		})
	}
	done, err := drain(ctx, e, o, func(done int64) bool {
		emptied.Store(done)
		return time.Now().Before(end) || done < stored.Load()
	})
	if err = errors.Join(err, producers.Wait()); err != nil {
		return err
	}
	after, err := usage(ctx, server, e)
	if err != nil {
		return err
	}
	deadlocks := after.deadlocks - before.deadlocks
	fmt.Printf("%v: %d tasks stored, %d finished, %d deadlocks, %d workers\n", o.soak, stored.Load(), done,
		deadlocks, o.workers)
	if deadlocks != 0 || done != stored.Load() {
		return errors.New("want as many finished as stored, and no deadlock")
	}
	return nil
}

func usage(ctx context.Context, server *mysqltest.Server, c contender) (u used, err error) {
	db, err := server.Admin()
	if err != nil {
		return u, err
	}
	defer db.Close()
	if u.deadlocks, err = deadlocks(ctx, db); err != nil {
		return u, err
	}
	meter, err := mysql.New(ctx, db, mysql.Options{})
	if err != nil {
		return u, err
	}
	defer meter.Close()
	m, err := meter.Measure(ctx)
	if err != nil {
		return u, err
	}
	u.server = m.ServerCPU
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		return u, err
	}
	u.client = time.Duration(own.Utime.Nano() + own.Stime.Nano())
	if e, ok := c.(*engine); ok {
		u.trips = e.trips(ctx)
	}
	return u, nil
}

// deadlocks asks for MariaDB's counter, and for MySQL's if that does not exist.
func deadlocks(ctx context.Context, db *sql.DB) (n int64, err error) {
	var name string
	err = db.QueryRowContext(ctx, "show global status like 'Innodb_deadlocks'").Scan(&name, &n)
	if errors.Is(err, sql.ErrNoRows) {
		err = db.QueryRowContext(ctx, "select count from information_schema.innodb_metrics where name = 'lock_deadlocks'").
			Scan(&n)
	}
	return n, err
}

// driverDSN converts a database URL to the driver's format.
func driverDSN(dsn string) string {
	u, err := url.Parse(dsn)
	if err != nil {
		return dsn // the driver reports what is wrong
	}
	config := driver.NewConfig()
	config.User = u.User.Username()
	config.Passwd, _ = u.User.Password()
	config.Net, config.Addr, config.DBName = "tcp", u.Host, strings.Trim(u.Path, "/")
	config.InterpolateParams = true
	return config.FormatDSN()
}

func medianOf(all []figure) figure {
	pick := func(field func(figure) float64) float64 {
		var values []float64
		for _, f := range all {
			values = append(values, field(f))
		}
		return median(values)
	}
	m := figure{TasksPerS: pick(func(f figure) float64 { return f.TasksPerS }),
		ServerCPU: pick(func(f figure) float64 { return f.ServerCPU }),
		ClientCPU: pick(func(f figure) float64 { return f.ClientCPU }),
		Trips:     pick(func(f figure) float64 { return f.Trips })}
	for _, f := range all {
		m.Deadlocks += f.Deadlocks
	}
	return m
}
