package server

import (
	"cmp"
	"encoding/json"
	"net/http"
	"time"

	"github.com/tuskqueue/tusk"
)

// Pipeline is a fixed sequence of stages, as stored in the database.
type Pipeline struct {
	Name   string    `json:"name"`
	ToldAt time.Time `json:"told_at"`
	Stages []Stage   `json:"stages"`
}

// Stage is a stage of a pipeline with its status.
type Stage struct {
	Name      string           `json:"name"`
	Kind      string           `json:"kind"`
	Queue     string           `json:"queue"`
	Paused    bool             `json:"paused"`
	Tasks     map[string]int64 `json:"tasks" doc:"unfinished tasks by state; up to 1,000 of each if stages share a queue"`
	Oldest    float64          `json:"oldest_seconds"`
	Stuck     string           `json:"stuck,omitempty" doc:"why its tasks do not move on; absent: they do, or it has none"`
	Completed int64            `json:"completed" doc:"attempts of the last hour"`
	Failed    int64            `json:"failed"`
	Waited    Span             `json:"waited" doc:"from due to claimed"`
	Ran       Span             `json:"ran"`
}

// PipelineList is a list of pipelines, by name.
type PipelineList struct {
	Pipelines []Pipeline `json:"pipelines"`
}

func listPipelines(c *call, _ struct{}) (PipelineList, error) {
	list := PipelineList{Pipelines: []Pipeline{}}
	all, err := c.client.Pipelines(c.r.Context())
	if err != nil {
		return list, err
	}
	every, err := c.client.AllPipelineStats(c.r.Context(), time.Now().Add(-time.Hour))
	if err != nil {
		return list, err
	}
	for _, p := range all {
		stats := every[p.Name] // zero if it was removed meanwhile
		v := Pipeline{Name: p.Name, ToldAt: utc(p.ToldAt), Stages: []Stage{}}
		for i := range stats {
			if c.who.SeesQueue(stats[i].Queue) {
				v.Stages = append(v.Stages, viewStage(&stats[i]))
			}
		}
		if len(v.Stages) > 0 {
			list.Pipelines = append(list.Pipelines, v)
		}
	}
	return list, nil
}

func viewStage(s *tusk.StageStats) Stage {
	v := Stage{Name: s.Name, Kind: s.Kind, Queue: s.Queue, Paused: s.Paused, Tasks: map[string]int64{},
		Oldest: s.Oldest.Seconds(), Stuck: s.Stuck,
		Completed: s.Completed, Failed: s.Failed, Waited: viewSpan(&s.Waited), Ran: viewSpan(&s.Ran)}
	for state, n := range s.Tasks {
		v.Tasks[state.String()] = n
	}
	return v
}

func removePipeline(c *call, in bySchedule) (nothing, error) {
	c.target = short(in.Name)
	return nothing{}, c.client.RemovePipeline(c.r.Context(), in.Name)
}

type definePipelineInput struct {
	Name string `path:"name" rule:"name"`
	Body struct {
		Stages []tusk.PipelineStage `json:"stages" minItems:"1" maxItems:"100"`
	}
}

func definePipeline(c *call, in definePipelineInput) (nothing, error) {
	c.target = short(in.Name)
	text, err := json.Marshal(in.Body)
	if err != nil {
		return nothing{}, err
	}
	p, err := tusk.ParsePipeline(in.Name, text)
	if err != nil {
		return nothing{}, err
	}
	return nothing{}, c.client.DefinePipeline(c.r.Context(), p)
}

type startPipelineInput struct {
	Name string `path:"name" rule:"name"`
	Body PipelineStart
}

// PipelineStart is a task that enters a pipeline.
type PipelineStart struct {
	Input json.
		RawMessage `json:"input,omitempty" doc:"of the first stage, any JSON of up to 256 KiB, 64 levels; default: {}"`
	Stage      string            `json:"stage,omitempty" rule:"optional-name" doc:"where to start; default: the first"`
	Tenant     string            `json:"tenant,omitempty" rule:"optional-name"`
	Partition  string            `json:"partition,omitempty" rule:"key" doc:"within the tenant, in queues with limits"`
	Priority   int16             `json:"priority,omitempty" rule:"priority" doc:"lower runs sooner"`
	Tags       []string          `json:"tags,omitempty" rule:"tag"`
	Metadata   map[string]string `json:"metadata,omitempty" doc:"up to 16 KiB as JSON"`
	RunAt      *Instant          `json:"run_at,omitempty" doc:"the earliest start"`
	Delay      Duration          `json:"delay,omitempty" doc:"up to 10 years; not together with run_at"`
	Key        string            `json:"key,omitempty" rule:"key" doc:"at most one unfinished task of a queue and tenant"`
	OnConflict string            `json:"on_conflict,omitempty" enum:"skip,replace,rerun,once" doc:"default: skip"`
	SourceTime *Instant          `json:"source_time,omitempty" doc:"when the key's source changed, for rerun"`
}

func startPipeline(c *call, in startPipelineInput) (EnqueuedTask, error) {
	c.target = short(in.Name)
	p, err := c.client.Pipeline(c.r.Context(), in.Name)
	if err != nil {
		return EnqueuedTask{}, err
	}
	b := in.Body
	if len(b.Input) == 0 {
		b.Input = json.RawMessage("{}")
	}
	args := p.Start(b.Input)
	if b.Stage != "" {
		args = p.StartAt(b.Stage, b.Input)
	}
	stage := args.(interface{ Options() tusk.Options }).Options() // an unknown stage is refused below
	if allowed(c.who, stage.Queue, cmp.Or(b.Tenant, stage.Tenant)) != nil {
		// The error of allowed would name the stage's queue, which the caller may not know.
		return EnqueuedTask{}, problem(http.StatusForbidden, "forbidden",
			"your %s may not use the queue of this stage, or not for this tenant", c.who.Via)
	}
	o, err := TaskInput{Tenant: b.Tenant, Partition: b.Partition, Priority: b.Priority, Tags: b.Tags, Metadata: b.Metadata,
		RunAt: b.RunAt, Delay: b.Delay,
		Key: b.Key, OnConflict: b.OnConflict, SourceTime: b.SourceTime}.options()
	if err != nil {
		return EnqueuedTask{}, err
	}
	enqueued, err := c.client.Enqueue(c.r.Context(), args, o)
	if err != nil {
		return EnqueuedTask{}, err
	}
	view := results([]tusk.Enqueued{enqueued})[0]
	if view.Duplicate {
		c.status = http.StatusOK
	}
	return view, nil
}
