package tusk

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// StageStats is how a stage of a pipeline is doing.
type StageStats struct {
	StageInfo
	Paused bool // its queue
	// Tasks are its unfinished tasks; of a queue that other stages share, at most
	// 1,000 of each state are counted.
	Tasks  map[State]int64
	Oldest time.Duration // how long the oldest available task of its queue has been due
	// What its attempts came to in the time asked for.
	Completed, Failed, Discarded, Cancelled int64
	Waited, Ran                             store.Durations

	// Stuck says why its tasks do not move on; empty: they do, or there are none.
	Stuck string
}

const (
	stuckAfter = 30 * time.Second // due for so long, tasks should have been claimed
	stuckLooks = 5 * time.Minute  // attempts of this long are looked at
	mostShared = 1000
)

// PipelineStats returns how the stages of a pipeline are doing, in their order, with
// what their attempts came to from an instant on, to the minute. The error is
// ErrNotFound when no worker has told of the pipeline.
func (c *Client) PipelineStats(ctx context.Context, name string, from time.Time) ([]StageStats, error) {
	all, err := c.Pipelines(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(p PipelineInfo) bool { return p.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("pipeline %s: %w", cutText(name), ErrNotFound)
	}
	queues, err := c.Queues(ctx)
	if err != nil {
		return nil, err
	}
	workers, err := c.Workers(ctx)
	if err != nil {
		return nil, err
	}
	stages := make([]StageStats, len(all[i].Stages))
	for j, info := range all[i].Stages {
		s := &stages[j]
		s.StageInfo, s.Tasks = info, map[State]int64{}
		if q := slices.IndexFunc(queues, func(q Queue) bool { return q.Name == info.Queue }); q >= 0 {
			s.Paused, s.Tasks, s.Oldest = queues[q].Paused, queues[q].Tasks, queues[q].Oldest
		}
		if info.Queue != info.Kind {
			if err := c.countShared(ctx, s); err != nil {
				return nil, err
			}
		}
		lately, err := c.addAttempts(ctx, s, from)
		if err != nil {
			return nil, err
		}
		s.Stuck = s.stuck(lately, slices.ContainsFunc(workers, func(w store.Worker) bool { return slices.Contains(w.Queues, info.Queue) }))
	}
	return stages, nil
}

// countShared counts the tasks of a stage by its kind, as its queue may have others.
func (c *Client) countShared(ctx context.Context, s *StageStats) error {
	s.Tasks = map[State]int64{}
	for _, state := range store.States() {
		if state.Finished() {
			continue
		}
		n, err := c.Count(ctx, Filter{Queues: []string{s.Queue}, Kinds: []string{s.Kind}, States: []State{state}}, mostShared)
		if err != nil {
			return err
		}
		if n.Tasks > 0 {
			s.Tasks[state] = n.Tasks
		}
	}
	return nil
}

// addAttempts sums up what a stage's attempts came to, and returns those of late.
func (c *Client) addAttempts(ctx context.Context, s *StageStats, from time.Time) (lately store.Stat, err error) {
	recent := time.Now().Add(-stuckLooks)
	if from.After(recent) {
		recent = from
	}
	stats, err := c.Stats(ctx, store.StatsFilter{Bucket: time.Minute, From: from.Truncate(time.Minute), Queue: s.Queue, Kind: s.Kind})
	for i := range stats {
		n := &stats[i]
		s.Completed, s.Failed, s.Discarded, s.Cancelled = s.Completed+n.Completed, s.Failed+n.Failed, s.Discarded+n.Discarded, s.Cancelled+n.Cancelled
		s.Waited.Merge(&n.Waited)
		s.Ran.Merge(&n.Ran)
		if !n.At.Before(recent.Truncate(time.Minute)) {
			lately.Completed, lately.Failed = lately.Completed+n.Completed, lately.Failed+n.Failed
		}
	}
	return lately, err
}

// stuck says why a stage's tasks do not move on.
func (s *StageStats) stuck(lately store.Stat, served bool) string {
	due, waits := s.Tasks[StateAvailable] > 0 && s.Oldest > stuckAfter, len(s.Tasks) > 0
	switch {
	case s.Paused && waits:
		return "its queue is paused"
	case due && !served:
		return "no worker takes from its queue"
	case lately.Failed > 0 && lately.Completed == 0 && waits:
		return fmt.Sprintf("all of the last %d attempts failed", lately.Failed)
	case due && lately.Completed == 0 && s.Tasks[StateRunning] == 0:
		return fmt.Sprintf("nothing of it has run for %v, though tasks are due", min(s.Oldest, stuckLooks).Truncate(time.Second))
	}
	return ""
}
