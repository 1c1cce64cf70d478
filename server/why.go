package server

import "github.com/tuskqueue/tusk/why"

// Why explains why a task does not run.
type Why struct {
	ID      string      `json:"id"`
	State   string      `json:"state"`
	Reasons []WhyReason `json:"reasons" doc:"the reason to act on first"`
}

// WhyReason is one reason.
type WhyReason struct {
	Code  string   `json:"code" doc:"stable, such as paused or no_worker"`
	Text  string   `json:"text"`
	Fix   string   `json:"fix,omitempty" doc:"the command that changes it"`
	Until *Instant `json:"until,omitempty" doc:"when it ends by itself, if known"`
	Tasks []string `json:"tasks,omitempty" doc:"ids of the tasks concerned, at most 10"`
}

func whyTask(c *call, in byID) (Why, error) {
	t, err := c.visible(in.ID)
	if err != nil {
		return Why{}, err
	}
	facts, err := why.Gather(c.r.Context(), c.client, *t, c.who.Bounds())
	if err != nil {
		return Why{}, err
	}
	return Why{ID: t.ID.String(), State: t.State.String(), Reasons: viewReasons(why.Explain(facts))}, nil
}

// ScheduleWhy explains why a schedule does not fire.
type ScheduleWhy struct {
	Name    string      `json:"name"`
	Reasons []WhyReason `json:"reasons" doc:"the reason to act on first"`
}

func whySchedule(c *call, in bySchedule) (ScheduleWhy, error) {
	s, err := c.schedule(in.Name)
	if err != nil {
		return ScheduleWhy{}, err
	}
	facts, err := why.GatherSchedule(c.r.Context(), c.client, s)
	if err != nil {
		return ScheduleWhy{}, err
	}
	return ScheduleWhy{Name: s.Name, Reasons: viewReasons(why.ExplainSchedule(facts))}, nil
}

func viewReasons(reasons []why.Reason) []WhyReason {
	views := []WhyReason{}
	for _, r := range reasons {
		v := WhyReason{Code: string(r.Code), Text: r.Text, Fix: r.Fix}
		if !r.Until.IsZero() {
			v.Until = &Instant{utc(r.Until)}
		}
		for _, id := range r.Tasks {
			v.Tasks = append(v.Tasks, id.String())
		}
		views = append(views, v)
	}
	return views
}
