package ui

import (
	"net/http"
	"strings"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/push"
)

type endpointRow struct {
	push.Endpoint
	push.Status
}

type endpointsData struct {
	Endpoints []endpointRow
	Form      endpointForm
	Problem   string
}

// endpointForm is an endpoint as shown in a form.
type endpointForm struct{ Queue, URL, Concurrency, Timeout string }

func endpoints(v *visit) (answer, error) { return v.endpoints(endpointsData{}, nil) }

func (v *visit) endpoints(d endpointsData, problem error) (a answer, err error) {
	a = answer{page: "endpoints", title: "Endpoints", section: "endpoints"}
	if d.Problem, err = a.explain(problem); err != nil {
		return a, err
	}
	all, err := v.Endpoints.List(v.r.Context())
	for _, e := range all {
		d.Endpoints = append(d.Endpoints, endpointRow{e, v.Push.Status(e.Queue)})
	}
	a.data = d
	return a, err
}

func putEndpoint(v *visit) (answer, error) {
	form := v.r.PostForm
	f := endpointForm{strings.TrimSpace(form.Get("queue")), strings.TrimSpace(form.Get("url")), form.Get("concurrency"),
		form.Get("timeout")}
	if f.Queue == "" {
		f.Queue = tusk.DefaultQueue
	}
	v.target = short(f.Queue)
	secret, err := v.storeEndpoint(f)
	if err != nil {
		return v.endpoints(endpointsData{Form: f}, err)
	}
	if secret == "" {
		return goTo("/endpoints", "saved"), nil
	}
	return endpointSecret(f.Queue, secret), nil
}

func endpointSecret(queue, secret string) answer {
	return show(newSecret{"endpoints", "The secret of the endpoint of " + queue,
		"The program at the endpoint checks signatures with it.", secret})
}

func (v *visit) storeEndpoint(f endpointForm) (secret string, err error) {
	e := push.Endpoint{Queue: f.Queue, URL: f.URL}
	if e.Concurrency, err = number(f.Concurrency); err != nil {
		return "", failure(http.StatusBadRequest, "The concurrency is a whole number.")
	}
	if e.Timeout, err = span(f.Timeout); err != nil {
		return "", err
	}
	secret, _, err = v.Endpoints.Put(v.r.Context(), e, v.who.Name)
	return secret, err
}

func rotateEndpoint(v *visit) (answer, error) {
	queue := v.r.PathValue("queue")
	v.target = short(queue)
	secret, _, err := v.Endpoints.Rotate(v.r.Context(), queue)
	if err != nil {
		return answer{}, err
	}
	return endpointSecret(queue, secret), nil
}

func removeEndpoint(v *visit) (answer, error) {
	queue := v.r.PathValue("queue")
	v.target = short(queue)
	if v.r.PostFormValue("confirm") != "yes" {
		if _, err := v.Endpoints.Get(v.r.Context(), queue); err != nil {
			return answer{}, err
		}
		return answer{page: "confirm", title: "Remove the endpoint?", section: "endpoints", data: confirmation{
			Question: "Remove the endpoint of " + queue + "?",
			Detail:   "Its tasks then wait for another worker. The secret is forgotten.", Button: "Remove",
			Action: v.url("endpoints", queue, "remove"), Back: v.url("endpoints")}}, nil
	}
	return goTo("/endpoints", "removed"), v.Endpoints.Remove(v.r.Context(), queue)
}
