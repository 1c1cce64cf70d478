package server

import (
	"time"

	"github.com/tuskqueue/tusk/server/push"
)

// Endpoint is where the tasks of a queue are sent, as the API shows it.
type Endpoint struct {
	Queue       string    `json:"queue"`
	URL         string    `json:"url"`
	Concurrency int       `json:"concurrency" doc:"concurrent calls of each server"`
	Timeout     Duration  `json:"timeout" doc:"limit for a call, unless the task has its own timeout"`
	CreatedAt   time.Time `json:"created_at"`
	CreatedBy   string    `json:"created_by"`
	RotatedAt   time.Time `json:"rotated_at,omitzero" doc:"when its secret was last replaced"`
	Running     int       `json:"running" doc:"calls in progress from this server"`
	LastCall    time.Time `json:"last_call,omitzero"`
	Trouble     string    `json:"trouble,omitempty" doc:"why this server pauses its calls"`
	PausedUntil time.Time `json:"paused_until,omitzero"`

	LastFailure *EndpointFailure `json:"last_failure,omitempty" doc:"of any server"`
}

// EndpointFailure is the latest call that did not reach an endpoint.
type EndpointFailure struct {
	At    time.Time `json:"at"`
	Error string    `json:"error"`
	Lasts bool      `json:"lasts" doc:"the endpoint has not answered since"`
}

// EndpointList is a list of endpoints, without their secrets.
type EndpointList struct {
	Endpoints []Endpoint `json:"endpoints"`
}

// NewEndpoint is an endpoint. If it is new, it has its secret, which is never shown again.
type NewEndpoint struct {
	Secret   string   `json:"secret,omitempty" doc:"signs the calls; only for a new endpoint or after a rotation"`
	Endpoint Endpoint `json:"endpoint"`
}

func (s *Server) viewEndpoint(e push.Endpoint) Endpoint {
	st := s.push.Status(e.Queue)
	var failure *EndpointFailure
	if d := e.State; !d.Failed.IsZero() {
		failure = &EndpointFailure{utc(d.Failed), d.Error, d.Fails()}
	}
	return Endpoint{Queue: e.Queue, URL: e.URL, Concurrency: e.Concurrency, Timeout: Duration(e.Timeout),
		CreatedAt: utc(e.CreatedAt), CreatedBy: e.CreatedBy,
		RotatedAt: utc(e.RotatedAt), Running: st.Running, LastCall: utc(st.Last), Trouble: st.Trouble,
		PausedUntil: utc(st.PausedUntil), LastFailure: failure}
}

func listEndpoints(c *call, _ struct{}) (EndpointList, error) {
	list := EndpointList{Endpoints: []Endpoint{}}
	all, err := c.endpoints.List(c.r.Context())
	for _, e := range all {
		list.Endpoints = append(list.Endpoints, c.viewEndpoint(e))
	}
	return list, err
}

func getEndpoint(c *call, in byQueue) (Endpoint, error) {
	e, err := c.endpoints.Get(c.r.Context(), in.Queue)
	return c.viewEndpoint(e), err
}

type putEndpointInput struct {
	byQueue
	Body struct {
		URL         string   `json:"url" rule:"url" doc:"https; http only for hosts that the server's operator allows"`
		Concurrency int      `json:"concurrency,omitempty" minimum:"0" maximum:"1000" doc:"0: the default, 10"`
		Timeout     Duration `json:"timeout,omitempty" doc:"1s to 1h; default: 1m"`
	}
}

func putEndpoint(c *call, in putEndpointInput) (NewEndpoint, error) {
	c.target = short(in.Queue)
	secret, e, err := c.endpoints.Put(c.r.Context(),
		push.Endpoint{Queue: in.Queue, URL: in.Body.URL, Concurrency: in.Body.Concurrency,
			Timeout: time.Duration(in.Body.Timeout)}, c.who.Name)
	return NewEndpoint{secret, c.viewEndpoint(e)}, err
}

func rotateEndpoint(c *call, in byQueue) (NewEndpoint, error) {
	c.target = short(in.Queue)
	before, err := c.endpoints.Get(c.r.Context(), in.Queue)
	if err != nil {
		return NewEndpoint{}, err
	}
	secret, e, err := c.endpoints.Rotate(c.r.Context(), in.Queue)
	e.State = before.State
	return NewEndpoint{secret, c.viewEndpoint(e)}, err
}

func removeEndpoint(c *call, in byQueue) (nothing, error) {
	c.target = short(in.Queue)
	return nothing{}, c.endpoints.Remove(c.r.Context(), in.Queue)
}
