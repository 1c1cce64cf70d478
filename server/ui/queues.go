package ui

import (
	"cmp"
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/duration"
)

type queuesData struct {
	Rows []queueRow
	Form *queueForm // nil if no queue is being edited
}

// queueForm is the settings of a queue as shown in forms.
type queueForm struct {
	Queue, Every, To, Completed, Cancelled, Discarded string
}

func queues(v *visit) (answer, error) {
	s, err := v.Feed.Look(v.r.Context())
	if err != nil {
		return answer{}, err
	}
	d := queuesData{Rows: v.queueRows(s)}
	for i := range d.Rows {
		if d.Rows[i].Name == v.r.URL.Query().Get("edit") {
			d.Form = queueFormOf(&d.Rows[i].Queue)
		}
	}
	return answer{page: "queues", title: "Queues", section: "queues", data: d}, nil
}

func queueFormOf(q *tusk.Queue) *queueForm {
	f := &queueForm{Queue: q.Name, To: "0", Completed: keepText(q.Retention.Completed),
		Cancelled: keepText(q.Retention.Cancelled),
		Discarded: keepText(q.Retention.Discarded)}
	if q.Aging.Every > 0 {
		f.Every, f.To = duration.Hours(q.Aging.Every), strconv.Itoa(int(q.Aging.To))
	}
	return f
}

func pauseQueue(v *visit) (answer, error)  { return v.changeQueue("paused", v.client.PauseQueue) }
func resumeQueue(v *visit) (answer, error) { return v.changeQueue("resumed", v.client.ResumeQueue) }

// removeQueue removes a queue from the lists, after a confirmation.
func removeQueue(v *visit) (answer, error) {
	name := v.r.PathValue("queue")
	if v.r.PostFormValue("confirm") != "yes" {
		return answer{page: "confirm", title: "Remove the queue?", section: "queues", data: confirmation{
			Question: "Remove the queue " + name + "?", Button: "Remove",
			Detail: "It leaves the lists, and its settings and limits are forgotten. Its finished tasks stay for as long as " +
				"they are kept. " +
				"The next task of this name brings it back.",
			Action: v.url("queues", name, "remove"), Back: v.url("queues")}}, nil
	}
	return v.changeQueue("removed", v.client.RemoveQueue)
}

// ageQueue makes the tasks of a queue rise while they wait. An empty field stops that.
func ageQueue(v *visit) (answer, error) {
	v.r.SetPathValue("queue", strings.TrimSpace(v.r.PostFormValue("queue")))
	var a tusk.Aging
	to, err := strconv.ParseInt(cmp.Or(v.r.PostFormValue("to"), "0"), 10, 16)
	if err != nil {
		return answer{}, failure(http.StatusBadRequest, "The priority is a whole number from -32768 to 32767.")
	}
	every := v.r.PostFormValue("every")
	if a.Every, err = span(every); err != nil {
		return answer{}, err
	}
	if every != "" && a.Every == 0 {
		return answer{}, failure(http.StatusBadRequest, "Tasks rise every 1s or more. Leave it empty for not at all.")
	}
	a.To = int16(to)
	return v.changeQueue("saved", func(ctx context.Context, name string) error { return v.client.SetAging(ctx, name, a) })
}

// keepQueue sets how long a queue keeps its finished tasks. An empty field means the default.
func keepQueue(v *visit) (answer, error) {
	v.r.SetPathValue("queue", strings.TrimSpace(v.r.PostFormValue("queue")))
	var r tusk.QueueRetention
	var err error
	for name, into := range map[string]*time.Duration{"completed": &r.Completed, "cancelled": &r.Cancelled,
		"discarded": &r.Discarded} {
		if *into, err = keepSpan(strings.TrimSpace(v.r.PostFormValue(name))); err != nil {
			return answer{}, err
		}
	}
	return v.changeQueue("saved", func(ctx context.Context, name string) error {
		return v.client.SetRetention(ctx, name, r)
	})
}

const day = 24 * time.Hour

// keepSpan reads a retention: 10m, 72h, 30d or forever.
func keepSpan(text string) (time.Duration, error) {
	if text == "forever" {
		return tusk.Forever, nil
	}
	if text == "" {
		return 0, nil
	}
	d, err := duration.ParseKept(text)
	if err != nil {
		return 0, failure(http.StatusBadRequest,
			"A time to keep tasks is written like 72h or 30d, or is forever. Leave it empty for what others have.")
	}
	return d, nil
}

// keepText formats a retention as keepSpan reads it; empty means the default.
func keepText(d time.Duration) string {
	switch {
	case d == 0:
		return ""
	case d == tusk.Forever:
		return "forever"
	case d%day == 0:
		return strconv.Itoa(int(d/day)) + "d"
	}
	return duration.Hours(d)
}

// keeps describes the retention of a queue that differs from the default.
func keeps(r tusk.QueueRetention) string {
	var parts []string
	for _, of := range []struct {
		name string
		keep time.Duration
	}{{"completed", r.Completed}, {"cancelled", r.Cancelled}, {"discarded", r.Discarded}} {
		switch {
		case of.keep == tusk.Forever:
			parts = append(parts, of.name+" forever")
		case of.keep > 0:
			parts = append(parts, of.name+" "+dur(of.keep))
		}
	}
	return strings.Join(parts, ", ")
}
