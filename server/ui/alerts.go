package ui

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tuskqueue/tusk/internal/duration"
	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/server/alert"
	"github.com/tuskqueue/tusk/server/hook"
	"github.com/tuskqueue/tusk/server/notify"
	"github.com/tuskqueue/tusk/server/query"
)

type alertsData struct {
	Alerts  []alert.Alert
	Hooks   []hook.Status // for admins
	Watched time.Time
	Kinds   []alert.Kind
	Form    alertForm
	Problem string
}

// alertForm is an alert as shown in a form.
type alertForm struct{ Name, Kind, Queue, Schedule, Over, Rate, For, Repeat, Slack, Webhooks, Mail, New string }

func alerts(v *visit) (answer, error) {
	d := alertsData{}
	if name := v.r.URL.Query().Get("edit"); name != "" {
		a, err := v.alert(name)
		if err != nil {
			return answer{}, err
		}
		d.Form = formOfAlert(&a.Rule)
	}
	return v.alertPage(d, nil)
}

// alert returns an alert if the visitor may see it. An alert for all queues is visible only to those who see all
// queues.
func (v *visit) alert(name string) (alert.Alert, error) {
	a, err := v.Alerts.Get(v.r.Context(), name)
	if err == nil && !v.who.SeesAllOf(a.Queue) {
		err = alert.ErrNotFound
	}
	return a, err
}

func formOfAlert(r *alert.Rule) alertForm {
	f := alertForm{Name: r.Name, Kind: string(r.Kind), Queue: r.Queue, Schedule: r.Schedule, Over: optionalSpan(r.Over),
		For: optionalSpan(r.For), Repeat: optionalSpan(r.Repeat)}
	if r.Rate > 0 {
		f.Rate = strconv.FormatInt(r.Rate, 10)
	}
	return f
}

// optionalSpan formats a duration for a form; 0 gives an empty field.
func optionalSpan(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return duration.Hours(d)
}

func (v *visit) alertPage(d alertsData, problem error) (a answer, err error) {
	a = answer{page: "alerts", title: "Alerts", section: "alerts"}
	if d.Problem, err = a.explain(problem); err != nil {
		return a, err
	}
	d.Kinds = alert.Kinds()
	if d.Alerts, err = v.Alerts.List(v.r.Context()); err != nil {
		return a, err
	}
	d.Alerts = slices.DeleteFunc(d.Alerts, func(a alert.Alert) bool { return !v.who.SeesAllOf(a.Queue) })
	if v.Hooks != nil && v.who.May(access.Admin) {
		if d.Hooks, err = v.Hooks.List(v.r.Context()); err != nil {
			return a, err
		}
	}
	d.Watched, err = v.Alerts.Watched(v.r.Context())
	a.data = d
	return a, err
}

func putAlert(v *visit) (answer, error) {
	form := v.r.PostForm
	text := func(name string) string { return strings.TrimSpace(form.Get(name)) }
	f := alertForm{text("name"), text("kind"), text("queue"), text("schedule"), text("over"), text("rate"), text("for"),
		text("repeat"),
		text("slack"), text("webhooks"), text("mail"), text("new")}
	v.target, v.detail = short(f.Name), short(f.Kind)
	secret, err := v.storeAlert(&f)
	if err != nil {
		f.Slack = "" // do not show a secret again
		return v.alertPage(alertsData{Form: f}, err)
	}
	if secret == "" {
		return goTo("/alerts", "saved"), nil
	}
	return show(newSecret{"alerts", "The secret of the webhooks of " + f.Name,
		"The program at the URL checks signatures with it.", secret}), nil
}

func (v *visit) storeAlert(f *alertForm) (secret string, err error) {
	r := alert.Rule{Name: f.Name, Kind: alert.Kind(f.Kind), Queue: f.Queue, Schedule: f.Schedule,
		To: notify.Receivers(strings.Fields(f.Slack), strings.Fields(f.Webhooks), strings.Fields(f.Mail))}
	for text, into := range map[string]*time.Duration{f.Over: &r.Over, f.For: &r.For, f.Repeat: &r.Repeat} {
		if *into, err = span(text); err != nil {
			return "", err
		}
	}
	if f.Rate != "" {
		if r.Rate, err = strconv.ParseInt(f.Rate, 10, 64); err != nil {
			return "", failure(http.StatusBadRequest, "The number of tasks in a minute is a whole number.")
		}
	}
	if f.Queue != "" && f.New != f.Queue {
		if known, err := query.KnowsQueue(v.r.Context(), v.client, f.Queue); err != nil {
			return "", err
		} else if !known {
			f.New = f.Queue
			return "", failure(http.StatusNotFound,
				"The queue %s is unknown. To use it anyway, store the alert again.", f.Queue)
		}
	}
	secret, _, err = v.Alerts.Put(v.r.Context(), r, v.who.Name)
	return secret, err
}

func editAlert(v *visit) (answer, error) {
	name, ctx := v.r.PathValue("name"), v.r.Context()
	v.target, v.detail = short(name), v.r.PathValue("action")
	if _, err := v.alert(name); err != nil {
		return answer{}, err
	}
	switch v.detail {
	case "test":
		_, err := v.Alerts.Test(ctx, name)
		return goTo("/alerts", "testing"), err
	case "mute":
		return goTo("/alerts", "muted"), v.Alerts.Mute(ctx, name, time.Hour)
	case "unmute":
		return goTo("/alerts", "unmuted"), v.Alerts.Mute(ctx, name, 0)
	}
	return answer{}, failure(http.StatusNotFound, "There is no such page.")
}

func removeAlert(v *visit) (answer, error) {
	name := v.r.PathValue("name")
	v.target = short(name)
	if v.r.PostFormValue("confirm") != "yes" {
		if _, err := v.Alerts.Get(v.r.Context(), name); err != nil {
			return answer{}, err
		}
		return answer{page: "confirm", title: "Remove the alert?", section: "alerts", data: confirmation{
			Question: "Remove the alert " + name + "?", Detail: "Nobody is told any more, nor that it is over.",
			Button: "Remove",
			Action: v.url("alerts", name, "remove"), Back: v.url("alerts")}}, nil
	}
	return goTo("/alerts", "removed"), v.Alerts.Remove(v.r.Context(), name)
}
