package tusk

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// A pipeline is defined by a program, whose workers write it to the database, or by an operator. The definition
// shows people the stages in order, and lets workers in any language run them.

const (
	pipelineRecord = "pipeline"
	pipelineTold   = 24 * time.Hour // an unchanged definition is written again after this time
)

// PipelineInfo is a pipeline as the database knows it.
type PipelineInfo struct {
	Name   string
	Stages []StageInfo
	ToldAt time.Time // when it was last written; a worker does not write an unchanged definition again within a day
}

// StageInfo is a stage of a pipeline.
type StageInfo struct {
	Name  string `json:"name"`
	Kind  string `json:"kind"`  // of its tasks
	Queue string `json:"queue"` // of its tasks
}

// Pipelines lists the pipelines that the database knows, by name.
func (c *Client) Pipelines(ctx context.Context) ([]PipelineInfo, error) {
	records, err := c.store.Records(ctx, store.RecordFilter{Kind: pipelineRecord})
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

// RemovePipeline removes the definition of a pipeline. Its tasks stay; they end with their current stage unless a
// program moves them on. A worker that still has the pipeline writes it again at its next start. The error is
// ErrNotFound if the database does not know the pipeline.
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

// tellPipelines writes the pipelines whose stages this worker runs to the database.
func (w *Worker) tellPipelines(ctx context.Context) (time.Duration, error) {
	for _, p := range w.mux.pipelines {
		r, err := w.client.record(ctx, pipelineRecord, p.name)
		if err != nil {
			return 0, err
		}
		body, err := p.encode()
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
