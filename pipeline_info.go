package tusk

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// A pipeline is defined by a program. Its workers tell the database of it, so that
// an operator sees the stages in their order.

const (
	pipelineRecord = "pipeline"
	pipelineTold   = 24 * time.Hour // a definition that nobody changed is told again
)

// PipelineInfo is a pipeline as its workers tell of it.
type PipelineInfo struct {
	Name   string
	Stages []StageInfo
	ToldAt time.Time // when a worker told of it last; one that starts within a day of that does not tell again
}

// StageInfo is a stage of a pipeline.
type StageInfo struct {
	Name  string `json:"name"`
	Kind  string `json:"kind"`  // of its tasks
	Queue string `json:"queue"` // that they go to
}

// Pipelines lists the pipelines that workers have told of, by name.
func (c *Client) Pipelines(ctx context.Context) ([]PipelineInfo, error) {
	records, err := c.store.Records(ctx, pipelineRecord)
	if err != nil {
		return nil, fmt.Errorf("pipelines: %w", err)
	}
	infos := make([]PipelineInfo, len(records))
	for i, r := range records {
		infos[i] = PipelineInfo{Name: r.Name, ToldAt: r.UpdatedAt}
		if err := json.Unmarshal(r.Body, &infos[i].Stages); err != nil {
			return nil, fmt.Errorf("pipeline %s: %w", r.Name, err)
		}
	}
	slices.SortFunc(infos, func(a, b PipelineInfo) int { return compareText(a.Name, b.Name) })
	return infos, nil
}

// RemovePipeline forgets what workers told of a pipeline; its tasks stay. A worker
// that still has it tells of it again at its next start. The error is ErrNotFound
// when none told of it.
func (c *Client) RemovePipeline(ctx context.Context, name string) error {
	err := c.changeRecord(ctx, pipelineRecord, name, func(body []byte) ([]byte, error) {
		if len(body) == 0 {
			return nil, ErrNotFound
		}
		return nil, nil
	})
	if err != nil {
		return fmt.Errorf("pipeline %s: %w", name, err)
	}
	return nil
}

// tellPipelines writes down the pipelines whose stages this worker runs.
func (w *Worker) tellPipelines(ctx context.Context) (time.Duration, error) {
	for _, p := range w.mux.pipelines {
		r, err := w.client.record(ctx, pipelineRecord, p.name)
		if err != nil {
			return 0, err
		}
		stages := make([]StageInfo, len(p.stages))
		for i, s := range p.stages {
			stages[i] = StageInfo{Name: s.name, Kind: p.kind(s.name), Queue: s.options.Queue}
		}
		body, err := json.Marshal(stages)
		if err != nil {
			return 0, err
		}
		if bytes.Equal(body, r.Body) && time.Since(r.UpdatedAt) < pipelineTold {
			continue
		}
		err = w.client.changeRecord(ctx, pipelineRecord, p.name, func([]byte) ([]byte, error) { return body, nil })
		if err != nil {
			return 0, fmt.Errorf("pipeline %s: %w", p.name, err)
		}
	}
	return pipelineTold, nil
}
