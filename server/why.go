package server

import "github.com/tuskqueue/tusk/why"

// Why says why a task does not run.
type Why struct {
	ID      string      `json:"id"`
	State   string      `json:"state"`
	Reasons []WhyReason `json:"reasons" doc:"the one to act on first"`
}

// WhyReason is one reason.
type WhyReason struct {
	Code  string   `json:"code" doc:"stable, such as paused or no_worker"`
	Text  string   `json:"text"`
	Fix   string   `json:"fix,omitempty" doc:"the command that changes it"`
	Until *Instant `json:"until,omitempty" doc:"when it ends by itself, if that is known"`
	Tasks []string `json:"tasks,omitempty" doc:"ids of the tasks that it is about, at most 10"`
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
	w := Why{ID: t.ID.String(), State: t.State.String(), Reasons: []WhyReason{}}
	for _, r := range why.Explain(facts) {
		v := WhyReason{Code: string(r.Code), Text: r.Text, Fix: r.Fix}
		if !r.Until.IsZero() {
			v.Until = &Instant{utc(r.Until)}
		}
		for _, id := range r.Tasks {
			v.Tasks = append(v.Tasks, id.String())
		}
		w.Reasons = append(w.Reasons, v)
	}
	return w, nil
}
