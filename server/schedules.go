package server

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/cron"
)

// Schedule is a schedule as the API shows it.
type Schedule struct {
	Name      string          `json:"name"`
	Spec      string          `json:"spec"`
	Zone      string          `json:"zone"`
	Start     time.Time       `json:"start,omitzero"`
	Words     string          `json:"words"`
	Kind      string          `json:"kind"`
	Queue     string          `json:"queue"`
	Tenant    string          `json:"tenant,omitempty"`
	Partition string          `json:"partition,omitempty"`
	Priority  int16           `json:"priority"`
	Args      json.RawMessage `json:"args"`
	Tags      []string        `json:"tags,omitempty"`
	Missed    string          `json:"missed"`
	Cap       int             `json:"cap,omitempty"`
	Overlap   string          `json:"overlap"`
	Jitter    Duration        `json:"jitter,omitempty"`
	Paused    bool            `json:"paused"`
	Next      time.Time       `json:"next,omitzero"`
	Last      time.Time       `json:"last,omitzero"`
	LastTask  string          `json:"last_task,omitempty"`
	Fired     int64           `json:"fired"`
	Skipped   int64           `json:"skipped"`
}

// ScheduleList is a list of schedules.
type ScheduleList struct {
	Schedules []Schedule `json:"schedules"`
}

func (s *Server) viewSchedule(i tusk.ScheduleInfo) Schedule {
	v := Schedule{Name: i.Name, Spec: i.Spec, Zone: i.Zone, Start: utc(i.Start), Words: i.Words, Kind: i.Kind,
		Queue: i.Queue, Tenant: i.Tenant, Partition: i.Partition,
		Priority: i.Priority, Args: s.config.Mask.JSON(i.Args), Tags: i.Tags, Missed: string(i.Missed), Cap: i.Cap,
		Overlap: string(i.Overlap),
		Jitter:  Duration(i.Jitter), Paused: i.Paused, Next: utc(i.Next), Last: utc(i.Last), LastTask: i.LastTask,
		Fired: i.Fired, Skipped: i.Skipped}
	if v.Zone == "" {
		v.Zone = "UTC"
	}
	if v.Missed == "" {
		v.Missed = string(tusk.MissedOnce)
	}
	if v.Overlap == "" {
		v.Overlap = string(tusk.OverlapSkip)
	}
	if len(v.Args) == 0 {
		v.Args = json.RawMessage("{}")
	}
	return v
}

func listSchedules(c *call, _ struct{}) (ScheduleList, error) {
	list := ScheduleList{Schedules: []Schedule{}}
	schedules, err := c.client.Schedules(c.r.Context())
	for _, s := range schedules {
		if c.who.Sees(s.Queue, s.Tenant) {
			list.Schedules = append(list.Schedules, c.viewSchedule(s))
		}
	}
	return list, err
}

type bySchedule struct {
	Name string `path:"name" rule:"name"`
}

// schedule returns a schedule that the caller may see. Others do not exist for the caller.
func (c *call) schedule(name string) (tusk.ScheduleInfo, error) {
	c.target = short(name)
	schedules, err := c.client.Schedules(c.r.Context())
	if err != nil {
		return tusk.ScheduleInfo{}, err
	}
	for _, s := range schedules {
		if s.Name == name {
			return s, c.knows(s)
		}
	}
	return tusk.ScheduleInfo{}, noSchedule()
}

func noSchedule() error { return problem(http.StatusNotFound, "not_found", "schedule: not found") }

// knows rejects a schedule that the caller may not see, as if it did not exist.
func (c *call) knows(s tusk.ScheduleInfo) error {
	if !c.who.Sees(s.Queue, s.Tenant) {
		return noSchedule()
	}
	return nil
}

func getSchedule(c *call, in bySchedule) (Schedule, error) {
	s, err := c.schedule(in.Name)
	return c.viewSchedule(s), err
}

type putScheduleInput struct {
	bySchedule
	Body ScheduleInput
}

// ScheduleInput is a schedule that is created or changed.
type ScheduleInput struct {
	Spec         string            `json:"spec" minLength:"1" maxLength:"200" doc:"five cron fields, or a period: @every 15m, @every 7d"`
	Zone         string            `json:"zone,omitempty" maxLength:"100" doc:"IANA time zone; default: UTC"`
	Start        *Instant          `json:"start,omitempty" doc:"the first tick of a period, from which others are counted"`
	Kind         string            `json:"kind" rule:"name"`
	Args         json.RawMessage   `json:"args,omitempty" doc:"up to 256 KiB, 64 levels"`
	Queue        string            `json:"queue,omitempty" rule:"optional-name"`
	Tenant       string            `json:"tenant,omitempty" rule:"optional-name"`
	Partition    string            `json:"partition,omitempty" rule:"key"`
	Priority     int16             `json:"priority,omitempty" rule:"priority"`
	Tags         []string          `json:"tags,omitempty" rule:"tag"`
	Metadata     map[string]string `json:"metadata,omitempty" doc:"up to 16 KiB as JSON"`
	MaxAttempts  int               `json:"max_attempts,omitempty" rule:"attempts"`
	Timeout      Duration          `json:"timeout,omitempty" doc:"limit for each attempt, up to 7d"`
	StallTimeout Duration          `json:"stall_timeout,omitempty" doc:"limit without a sign of life, up to 7d"`
	Backoff      *BackoffInput     `json:"backoff,omitempty"`
	Weight       int               `json:"weight,omitempty" rule:"weight" doc:"how much it counts in rates; default: 1"`
	DeadlineIn   Duration          `json:"deadline_in,omitempty" doc:"time from its enqueue until a task must have ended"`
	Ephemeral    bool              `json:"ephemeral,omitempty" doc:"its tasks are not kept once they are completed"`
	Missed       string            `json:"missed,omitempty" enum:"once,skip,all"`
	Cap          int               `json:"cap,omitempty" minimum:"0" maximum:"10000"`
	Overlap      string            `json:"overlap,omitempty" enum:"skip,buffer,allow"`
	Jitter       Duration          `json:"jitter,omitempty" doc:"up to 24h"`
}

func putSchedule(c *call, in putScheduleInput) (Schedule, error) {
	b := in.Body
	c.target, c.detail = short(in.Name), short(b.Spec)
	if err := allowed(c.who, b.Queue, b.Tenant); err != nil {
		return Schedule{}, err
	}
	task, err := TaskInput{Kind: b.Kind, Args: b.Args, Queue: b.Queue, Tenant: b.Tenant, Partition: b.Partition,
		Priority: b.Priority, Tags: b.Tags,
		Metadata: b.Metadata, MaxAttempts: b.MaxAttempts, Timeout: b.Timeout, StallTimeout: b.StallTimeout,
		Backoff: b.Backoff,
		Weight:  b.Weight, DeadlineIn: b.DeadlineIn, Ephemeral: b.Ephemeral}.task()
	if err != nil {
		return Schedule{}, err
	}
	err = c.client.PutScheduleIf(c.r.Context(), tusk.Schedule{Name: in.Name, Spec: b.Spec, Zone: b.Zone,
		Start: instant(b.Start), Args: task.Args, Options: task.Options, Missed: tusk.MissedPolicy(b.Missed), Cap: b.Cap,
		Overlap: tusk.OverlapPolicy(b.Overlap), Jitter: time.Duration(b.Jitter)}, c.notAnothers)
	if err != nil {
		return Schedule{}, err
	}
	return getSchedule(c, in.bySchedule)
}

// notAnothers refuses to change an existing schedule that is out of the caller's bounds.
func (c *call) notAnothers(s tusk.ScheduleInfo) error {
	if !c.who.Sees(s.Queue, s.Tenant) {
		return problem(http.StatusForbidden, "forbidden", "that name is taken")
	}
	return nil
}

func removeSchedule(c *call, in bySchedule) (nothing, error) {
	if _, err := c.schedule(in.Name); err != nil {
		return nothing{}, err
	}
	return nothing{}, c.client.RemoveSchedule(c.r.Context(), in.Name, c.knows)
}

func pauseSchedule(c *call, in bySchedule) (Schedule, error) {
	if _, err := c.schedule(in.Name); err != nil {
		return Schedule{}, err
	}
	if err := c.client.PauseSchedule(c.r.Context(), in.Name, c.knows); err != nil {
		return Schedule{}, err
	}
	return getSchedule(c, in)
}

func resumeSchedule(c *call, in bySchedule) (Schedule, error) {
	if _, err := c.schedule(in.Name); err != nil {
		return Schedule{}, err
	}
	if err := c.client.ResumeSchedule(c.r.Context(), in.Name, c.knows); err != nil {
		return Schedule{}, err
	}
	return getSchedule(c, in)
}

func runSchedule(c *call, in bySchedule) (EnqueuedTask, error) {
	if _, err := c.schedule(in.Name); err != nil {
		return EnqueuedTask{}, err
	}
	e, err := c.client.RunSchedule(c.r.Context(), in.Name, c.knows)
	if err != nil {
		return EnqueuedTask{}, err
	}
	return results([]tusk.Enqueued{e})[0], nil
}

type backfillInput struct {
	bySchedule
	Body struct {
		From  *Instant `json:"from"`
		Until *Instant `json:"until" doc:"not in the future; at most 10,000 ticks in between"`
	}
}

// Backfilled says what became of the ticks of a backfill.
type Backfilled struct {
	Added   int `json:"added"`
	Skipped int `json:"skipped" doc:"their task is unfinished"`
}

func backfillSchedule(c *call, in backfillInput) (Backfilled, error) {
	if _, err := c.schedule(in.Name); err != nil {
		return Backfilled{}, err
	}
	from, until := instant(in.Body.From), instant(in.Body.Until)
	c.detail = from.Format(time.RFC3339) + " to " + until.Format(time.RFC3339)
	results, err := c.client.BackfillSchedule(c.r.Context(), in.Name, from, until, c.knows)
	out := Backfilled{}
	for _, r := range results {
		if r.Result == tusk.Added {
			out.Added++
		} else {
			out.Skipped++
		}
	}
	return out, err
}

type nextInput struct {
	bySchedule
	Count int `query:"count" minimum:"1" maximum:"100" default:"10"`
}

// Ticks are the next ticks of a schedule.
type Ticks struct {
	Words string      `json:"words"`
	Ticks []time.Time `json:"ticks" doc:"in the schedule's time zone"`
}

func nextTicks(c *call, in nextInput) (Ticks, error) {
	s, err := c.schedule(in.Name)
	if err != nil {
		return Ticks{}, err
	}
	spec, err := s.Parse()
	if err != nil {
		return Ticks{}, err
	}
	return Ticks{Words: s.Words, Ticks: ticks(spec, s.Next, in.Count)}, nil
}

// ticks begins with the planned tick, so that periods are shown as they will happen.
func ticks(spec cron.Schedule, next time.Time, n int) []time.Time {
	all := []time.Time{}
	if now := time.Now(); next.Before(now) {
		next = spec.Next(now)
	}
	for ; len(all) < n && !next.IsZero(); next = spec.Next(next) {
		all = append(all, next)
	}
	return all
}
