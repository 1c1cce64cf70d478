package server

import (
	"time"

	"github.com/tuskqueue/tusk/server/hook"
)

// Hook says which ends of tasks are sent to which URL, and its delivery status.
type Hook struct {
	Name      string    `json:"name"`
	URL       string    `json:"url"`
	Events    []string  `json:"events"`
	Queues    []string  `json:"queues,omitempty" doc:"none: all"`
	Keep      Duration  `json:"keep" doc:"how long undelivered events are kept before they are dropped"`
	Told      int64     `json:"told" doc:"events that arrived"`
	Dropped   int64     `json:"dropped" doc:"events that were given up"`
	Success   time.Time `json:"success,omitzero" doc:"when a call last arrived"`
	Waiting   time.Time `json:"waiting_since,omitzero" doc:"when the oldest waiting event happened"`
	Failed    time.Time `json:"failed,omitzero" doc:"when a call last failed"`
	Error     string    `json:"error,omitempty" doc:"why"`
	Next      time.Time `json:"next,omitzero" doc:"when the next call is made after a failure"`
	CreatedAt time.Time `json:"created_at"`
	CreatedBy string    `json:"created_by"`
}

// HookList is a list of hooks, without their secrets.
type HookList struct {
	Hooks   []Hook    `json:"hooks"`
	Watched time.Time `json:"watched,omitzero" doc:"when a server last processed them"`
}

// NewHook is a hook. If it is new, it has its secret, which is never shown again.
type NewHook struct {
	Secret string `json:"secret,omitempty"`
	Hook   Hook   `json:"hook"`
}

func viewHook(h hook.Status) Hook {
	return Hook{Name: h.Name, URL: h.URL, Events: append([]string{}, h.Events...), Queues: h.Queues,
		Keep: Duration(h.Keep), Told: h.Count, Dropped: h.Dropped,
		Success: utc(h.Arrived), Waiting: utc(h.Waits), Failed: utc(h.Failed), Error: h.Error, Next: utc(h.Next),
		CreatedAt: utc(h.CreatedAt), CreatedBy: h.CreatedBy}
}

func listHooks(c *call, _ struct{}) (list HookList, err error) {
	list.Hooks = []Hook{}
	all, err := c.hooks.List(c.r.Context())
	if err != nil {
		return list, err
	}
	for _, h := range all {
		list.Hooks = append(list.Hooks, viewHook(h))
	}
	watched, err := c.hooks.Watched(c.r.Context())
	list.Watched = utc(watched)
	return list, err
}

type byHook struct {
	Name string `path:"name" rule:"name"`
}

func getHook(c *call, in byHook) (Hook, error) {
	h, err := c.hooks.Get(c.r.Context(), in.Name)
	return viewHook(h), err
}

type putHookInput struct {
	byHook
	meant
	Body struct {
		URL    string   `json:"url" rule:"url" doc:"https; http only for hosts that the server's operator allows"`
		Events []string `json:"events,omitempty" maxItems:"4" enum:"task.completed,task.discarded,task.cancelled,task.rescued" doc:"default: task.discarded"`
		Queues []string `json:"queues,omitempty" maxItems:"100" rule:"name" doc:"default: all"`
		Keep   Duration `json:"keep,omitempty" doc:"1m to 7d; default: 24h"`
	}
}

func putHook(c *call, in putHookInput) (NewHook, error) {
	c.target = short(in.Name)
	if err := c.mayName(in.meant, in.Body.Queues...); err != nil {
		return NewHook{}, err
	}
	secret, h, err := c.hooks.Put(c.r.Context(), hook.Hook{Name: in.Name, URL: in.Body.URL, Events: in.Body.Events,
		Queues: in.Body.Queues, Keep: time.Duration(in.Body.Keep)}, c.who.Name)
	return NewHook{secret, viewHook(h)}, err
}

func removeHook(c *call, in byHook) (nothing, error) {
	c.target = short(in.Name)
	return nothing{}, c.hooks.Remove(c.r.Context(), in.Name)
}
