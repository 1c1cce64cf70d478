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

// idleSettles is how long workers idle before they are measured. Pools close the connections that
// they opened for the start after a minute or two, and each connection plans the statements of each
// ledger once.
const idleSettles = 150 * time.Second

// idle measures what a hundred workers cost a server with eight ledgers while there is nothing to
// do. Each worker has connections of its own, as in a process.
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
	// All connect before the first one works, so that each has time to connect, whatever the others
	// cost.
	all := make([]*tusk.Worker, idleWorkers)
	for i := range all {
		s, err := ledgers.Open(ctx, dsns[0]+"&pool_max_conns=8")
		if err != nil {
			return nil, fmt.Errorf("worker %d: %w", i, err)
		}
		defer s.Close()
		if all[i], err = idleWorker(s); err != nil {
			return nil, err
		}
	}
	working, done := context.WithCancel(ctx)
	defer done()
	var workers errgroup.Group
	for _, w := range all {
		workers.Go(func() error { return w.Run(working) })
	}
	if err := allLive(ctx, first); err != nil {
		return nil, err
	}
	select {
	case <-ctx.Done():
	case <-time.After(idleSettles):
	}
	if _, err := first.Measure(ctx); err != nil { // opens its connections
		return nil, err
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

func idleWorker(s *ledgers.Store) (*tusk.Worker, error) {
	client, err := tusk.NewClient(s, &tusk.ClientConfig{Logger: discard})
	if err != nil {
		return nil, err
	}
	mux := tusk.NewMux()
	tusk.HandleFunc(mux, func(context.Context, work) error { return nil })
	return tusk.NewWorker(client, mux, nil)
}

// liveWithin is the time limit for every worker's first beat.
const liveWithin = 2 * time.Minute

// allLive waits until every worker has sent a beat.
func allLive(ctx context.Context, s *ledgers.Store) error {
	ctx, cancel := context.WithTimeout(ctx, liveWithin)
	defer cancel()
	for {
		workers, err := s.Workers(ctx)
		switch {
		case err == nil && len(workers) == idleWorkers:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("%d of %d workers live: %w", len(workers), idleWorkers, errors.Join(ctx.Err(), err))
		}
		time.Sleep(time.Second)
	}
}
