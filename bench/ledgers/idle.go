package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store/ledgers"
)

const (
	idleWorkers = 100
	idleLedgers = 8
)

// idle is what a hundred workers, each with a process's connections of its own, cost a server
// with eight ledgers while nothing is to do.
func idle(ctx context.Context, b *bench) ([]bar, error) {
	_, dsns, stop, err := servers(1)
	if err != nil {
		return nil, err
	}
	defer stop()
	first, err := divided(ctx, idleLedgers, dsns...)
	if err != nil {
		return nil, err
	}
	defer first.Close()
	working, done := context.WithCancel(ctx)
	defer done()
	var workers errgroup.Group
	for range idleWorkers {
		s, err := ledgers.Open(ctx, dsns[0]+"&pool_max_conns=8")
		if err != nil {
			return nil, err
		}
		defer s.Close()
		client, err := tusk.NewClient(s, &tusk.ClientConfig{Logger: discard})
		if err != nil {
			return nil, err
		}
		mux := tusk.NewMux()
		tusk.HandleFunc(mux, func(context.Context, work) error { return nil })
		worker, err := tusk.NewWorker(client, mux, nil)
		if err != nil {
			return nil, err
		}
		workers.Go(func() error { return worker.Run(working) })
	}
	select {
	case <-ctx.Done():
	case <-time.After(b.lasts / 2): // connections, plans
	}
	before, err := first.Measure(ctx)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	select {
	case <-ctx.Done():
	case <-time.After(b.lasts):
	}
	after, err := first.Measure(ctx)
	took := time.Since(begun)
	var connections int64
	if h, failed := first.Examine(ctx); failed == nil {
		connections = h.Connections
	}
	done()
	err = errors.Join(err, workers.Wait())
	share := 100 * (after.ServerCPU - before.ServerCPU).Seconds() / took.Seconds()
	return []bar{{share, 5, false, "percent of a core that 100 idle workers cost a server with eight ledgers",
		fmt.Sprintf("%v, %d connections", took.Round(time.Second), connections)}}, err
}
