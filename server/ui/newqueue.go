package ui

import (
	"context"
	"net/http"
	"net/url"

	"github.com/tuskqueue/tusk/server/query"
)

// newQueue returns a question to ask if nothing is known about the queue. It returns "" if there is no need to ask.
func (v *visit) newQueue(queue string) (question string, err error) {
	if queue == "" || v.r.PostFormValue("confirm") == "yes" {
		return "", nil
	}
	known, err := query.KnowsQueue(v.r.Context(), v.client, queue)
	if err != nil || known {
		return "", err
	}
	return "The queue " + queue + " is unknown. Continue anyway?", nil
}

// askQueue asks that question, and sends the form again after confirmation. An answer without a page means that there
// is no need to ask.
func (v *visit) askQueue(queue, section, back string) (answer, error) {
	question, err := v.newQueue(queue)
	if err != nil || question == "" {
		return answer{}, err
	}
	return answer{page: "confirm", title: "A new queue?", section: section,
		data: confirmation{Question: question, Button: "Go on",
			Action: v.Prefix + v.r.URL.EscapedPath(), Fields: v.r.PostForm, Back: v.Prefix + back}}, nil
}

// mayChangeAll fails unless the visitor may change the queue for all tenants.
func (v *visit) mayChangeAll(queue string) error {
	if !v.who.SeesQueue(queue) || !v.who.SeesAllTenants() {
		return failure(http.StatusForbidden, "You may not change that queue.")
	}
	return nil
}

// maySet combines mayChangeAll and askQueue.
func (v *visit) maySet(queue, section, back string) (answer, error) {
	if err := v.mayChangeAll(queue); err != nil {
		return answer{}, err
	}
	return v.askQueue(queue, section, back)
}

func (v *visit) changeQueue(about string, set func(ctx context.Context, name string) error) (answer, error) {
	name := v.r.PathValue("queue")
	v.target = name
	to := "/queues"
	if v.r.PostFormValue("back") == "queue" {
		to += "/" + url.PathEscape(name)
	}
	if ask, err := v.maySet(name, "queues", to); err != nil || ask.page != "" {
		return ask, err
	}
	return goTo(to, about), set(v.r.Context(), name)
}
