package tusk

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// StageStats describes the current state of a stage of a pipeline.
type StageStats struct {
	StageInfo
	Paused bool // whether its queue is paused
	// Tasks are its unfinished tasks by state. For stages whose queues also have other tasks, only the newest
	// 1,000 tasks of each state are counted, over all such stages together.
	Tasks  map[State]int64
	Oldest time.Duration // how long the oldest available task of its queue has been due
	// The outcomes of its attempts in the requested period.
	Completed, Failed, Discarded, Cancelled int64
	Waited, Ran                             store.Durations

	// Stuck says why its tasks do not move on. It is empty if they do, or if the stage has no tasks.
	Stuck string
}

const (
	stuckAfter = 30 * time.Second // tasks due for this long should have been claimed
	stuckLooks = 5 * time.Minute  // period of attempts to examine

	mostShared   = 1000
	sharedBudget = 20000 // approximate number of tasks to read for stages with shared queues
)

// PipelineStats returns the state of the stages of a pipeline, in order, with the outcomes of their attempts since
// from, to the minute. The error is ErrNotFound if the database does not know the pipeline.
func (c *Client) PipelineStats(ctx context.Context, name string, from time.Time) ([]StageStats, error) {
	all, err := c.Pipelines(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(p PipelineInfo) bool { return p.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("pipeline %s: %w", cutText(name), ErrNotFound)
	}
	stats, err := c.statsOf(ctx, all[i:i+1], from)
	if err != nil {
		return nil, err
	}
	return stats[0], nil
}

// AllPipelineStats returns the result of PipelineStats for every pipeline, by name. It makes as many queries as
// PipelineStats does for one.
func (c *Client) AllPipelineStats(ctx context.Context, from time.Time) (map[string][]StageStats, error) {
	all, err := c.Pipelines(ctx)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	stats, err := c.statsOf(ctx, all, from)
	if err != nil {
		return nil, err
	}
	byName := make(map[string][]StageStats, len(all))
	for i, p := range all {
		byName[p.Name] = stats[i]
	}
	return byName, nil
}

// stageKey is where a stage's tasks are.
type stageKey struct{ queue, kind string }

// statsOf reads the state of all stages, in the order of the pipelines.
func (c *Client) statsOf(ctx context.Context, pipelines []PipelineInfo, from time.Time) ([][]StageStats, error) {
	queues, workers, err := c.QueuesAndWorkers(ctx)
	if err != nil {
		return nil, err
	}
	all := make([][]StageStats, len(pipelines))
	stages := map[stageKey][]*StageStats{}
	for i, p := range pipelines {
		all[i] = make([]StageStats, len(p.Stages))
		for j, info := range p.Stages {
			s := &all[i][j]
			s.StageInfo, s.Tasks = info, map[State]int64{}
			if q := slices.IndexFunc(queues, func(q Queue) bool { return q.Name == info.Queue }); q >= 0 {
				s.Paused, s.Tasks, s.Oldest = queues[q].Paused, queues[q].Tasks, queues[q].Oldest
			}
			stages[stageKey{info.Queue, info.Kind}] = append(stages[stageKey{info.Queue, info.Kind}], s)
		}
	}
	if err := c.countShared(ctx, stages); err != nil {
		return nil, err
	}
	lately, err := c.addAttempts(ctx, stages, from)
	if err != nil {
		return nil, err
	}
	for at, list := range stages {
		served := slices.ContainsFunc(workers, func(w store.Worker) bool { return slices.Contains(w.Queues, at.queue) })
		for _, s := range list {
			s.Stuck = s.stuck(lately[at], served)
		}
	}
	return all, nil
}

// countShared counts the tasks of stages by kind if their queues may also have other tasks.
func (c *Client) countShared(ctx context.Context, stages map[stageKey][]*StageStats) error {
	var f Filter
	for at, list := range stages {
		if at.queue != at.kind {
			f.Queues, f.Kinds = append(f.Queues, at.queue), append(f.Kinds, at.kind)
			for _, s := range list {
				s.Tasks = map[State]int64{}
			}
		}
	}
	if len(f.Kinds) == 0 {
		return nil
	}
	for _, state := range store.States() {
		if state.Finished() {
			continue
		}
		f.States, f.Limit = []State{state}, mostShared
		tasks, _, err := c.Search(ctx, f, sharedBudget)
		if err != nil {
			return err
		}
		for i := range tasks {
			if tasks[i].Queue == tasks[i].Kind {
				continue
			}
			for _, s := range stages[stageKey{tasks[i].Queue, tasks[i].Kind}] {
				s.Tasks[state]++
			}
		}
	}
	return nil
}

// addAttempts adds up the outcomes of the stages' attempts, and returns the recent ones separately.
func (c *Client) addAttempts(
	ctx context.Context, stages map[stageKey][]*StageStats, from time.Time,
) (lately map[stageKey]store.Stat, err error) {
	recent := time.Now().Add(-stuckLooks)
	if from.After(recent) {
		recent = from
	}
	f := store.StatsFilter{Bucket: time.Minute, From: from.Truncate(time.Minute)}
	stats, err := c.Stats(ctx, f)
	lately = map[stageKey]store.Stat{}
	for i := range stats {
		n := &stats[i]
		at := stageKey{n.Queue, n.Kind}
		for _, s := range stages[at] {
			s.Completed, s.Failed, s.Discarded, s.Cancelled = s.Completed+n.Completed, s.Failed+n.Failed,
				s.Discarded+n.Discarded, s.Cancelled+n.Cancelled
			s.Waited.Merge(&n.Waited)
			s.Ran.Merge(&n.Ran)
		}
		if !n.At.Before(recent.Truncate(time.Minute)) {
			sum := lately[at]
			sum.Completed, sum.Failed = sum.Completed+n.Completed, sum.Failed+n.Failed
			lately[at] = sum
		}
	}
	return lately, err
}

// stuck returns the reason why a stage's tasks do not move on, or "".
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
		return fmt.Sprintf("nothing of it has run for %v, though tasks are due",
			min(s.Oldest, stuckLooks).Truncate(time.Second))
	}
	return ""
}
