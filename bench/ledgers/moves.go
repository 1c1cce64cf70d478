package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/ledgers"
	"github.com/tuskqueue/tusk/store/postgres/pgtest"
)

const (
	storedQueue = "stored" // no worker serves it
	fences      = 5
)

// moves fences a ledger under full load, copies one with b.stored waiting tasks to another server, and moves one to a
// standby, all while tasks are enqueued and run.
func moves(ctx context.Context, b *bench) ([]bar, error) {
	all, dsns, stop, err := servers(2)
	if err != nil {
		return nil, err
	}
	defer stop()
	s, err := divided(ctx, 4, dsns...)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	stored, err := fill(ctx, s, 4*b.stored)
	if err != nil {
		return nil, err
	}
	fence, err := fenceUnderLoad(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("fence: %w", err)
	}
	on, err := s.Places(ctx)
	if err != nil {
		return nil, err
	}
	first, second := on[0].No, on[len(on)-1].No // each server has two, in order
	standby, err := all[1].Standby()
	if err != nil {
		return nil, err
	}
	defer standby.Stop()
	operator, err := ledgers.Open(ctx, append(dsns, standby.DSN)...)
	if err != nil {
		return nil, err
	}
	defer operator.Close()
	var copied, split ledgers.Moved
	tally, err := steadily(ctx, operator, func() (err error) {
		time.Sleep(2 * time.Second)
		if copied, err = operator.Move(ctx, named(all[1]), first); err != nil {
			return err
		}
		time.Sleep(2 * time.Second)
		if split, err = operator.Move(ctx, named(standby), second); err != nil {
			return err
		}
		time.Sleep(2 * time.Second)
		return nil
	})
	if err != nil {
		return nil, err
	}
	left, err := waiting(ctx, operator)
	if err != nil {
		return nil, err
	}
	tasks := fmt.Sprintf("%d tasks in each ledger", b.stored)
	return append([]bar{
		{fence.Seconds(), 1, false, "seconds to fence a ledger under full load", fmt.Sprintf("the longest of %d", fences)},
		{copied.Stood.Seconds(), 10, false, "seconds that a ledger stood while it was " + copied.How, tasks},
		{split.Stood.Seconds(), 5, false, "seconds that a ledger stood while its standby was " + split.How, tasks},
		{float64(stored - left), 0, false, "waiting tasks lost while ledgers moved", fmt.Sprintf("%d tasks", stored)},
	}, tally.bars("while ledgers moved")...), nil
}

// fill stores tasks that wait.
func fill(ctx context.Context, s *ledgers.Store, tasks int) (stored int, err error) {
	client, err := tusk.NewClient(s, &tusk.ClientConfig{Logger: discard})
	if err != nil {
		return 0, err
	}
	all := make([]tusk.NewTask, 10*batch)
	for i := range all {
		all[i] = tusk.NewTask{Args: work{i, pad}, Options: &tusk.Options{Queue: storedQueue}}
	}
	for stored < tasks {
		if _, err := client.EnqueueMany(ctx, all); err != nil {
			return stored, err
		}
		stored += len(all)
	}
	return stored, nil
}

// waiting counts the tasks that fill has stored.
func waiting(ctx context.Context, s *ledgers.Store) (n int, err error) {
	counts, err := s.Count(ctx)
	for _, c := range counts {
		if c.Queue == storedQueue && c.State == store.Available {
			n += int(c.Tasks)
		}
	}
	return n, err
}

// fenceUnderLoad returns the longest time that a fence took while producers and workers used the ledgers as fast as
// they could.
func fenceUnderLoad(ctx context.Context, s *ledgers.Store) (longest time.Duration, err error) {
	r, err := start(ctx, s, hands)
	if err != nil {
		return 0, err
	}
	working, enough := context.WithCancel(ctx)
	ran := make(chan error, 1)
	go func() {
		var err error
		for working.Err() == nil && err == nil {
			err = r.run(working, 20*batch)
		}
		ran <- err
	}()
	for range fences {
		time.Sleep(time.Second)
		began := time.Now()
		err = s.Fence(ctx, 1)
		longest = max(longest, time.Since(began))
		if err == nil {
			err = s.Open(ctx, "", 1)
		}
		if err != nil {
			break
		}
	}
	enough()
	if failed := <-ran; !errors.Is(failed, context.Canceled) {
		err = errors.Join(err, failed)
	}
	r.halt()
	return longest, errors.Join(err, r.workers.Wait())
}

// named returns a server as ledgers.Move takes it.
func named(s *pgtest.Server) string {
	_, after, _ := strings.Cut(s.DSN, "@")
	host, _, _ := strings.Cut(after, "/")
	return host
}
