package ui

import (
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/query"
)

// backfill enqueues a schedule's task for each tick of a past period, after it has told how many there are.
func (v *visit) backfill(s tusk.ScheduleInfo) (answer, error) {
	form, now := v.r.PostForm, time.Now().UTC().Truncate(time.Second)
	from, err := query.Instant("from", form.Get("from"), now)
	if err != nil {
		return answer{}, err
	}
	until, err := query.Instant("until", form.Get("until"), now)
	if err != nil {
		return answer{}, err
	}
	if until.IsZero() {
		until = now
	}
	if from.IsZero() || !from.Before(until) || until.After(now) {
		return answer{}, failure(http.StatusBadRequest,
			"Say a time that has passed: since when, and until when (empty: now).")
	}
	v.detail = "backfill " + from.Format(time.RFC3339) + " to " + until.Format(time.RFC3339)
	if form.Get("confirm") == "yes" {
		_, err := v.client.BackfillSchedule(v.r.Context(), s.Name, from, until, v.knows)
		return goTo("/schedules/"+url.PathEscape(s.Name), "backfilled"), err
	}
	ticks, err := s.Between(from, until)
	if err != nil {
		return answer{}, err
	}
	if len(ticks) == 0 {
		return answer{}, failure(http.StatusBadRequest, "The schedule has no tick from %s until %s.",
			instant{from, now}.Exact(), instant{until, now}.Exact())
	}
	first, last := instant{ticks[0], now}, instant{ticks[len(ticks)-1], now}
	return answer{page: "confirm", title: "Backfill the schedule?", section: "schedules", data: confirmation{
		Question: fmt.Sprintf("Enqueue the task of %s ticks of %s?", num(len(ticks)), s.Name),
		Detail: fmt.Sprintf(
			"The first is that of %s, the last that of %s. Ticks that fired in their time are enqueued again; those of which "+
				"a backfilled task has not finished are skipped.", first.Exact(), last.Exact()),
		Button: "Enqueue them", Action: v.url("schedules", s.Name, "backfill"), Back: v.url("schedules", s.Name),
		Fields: url.Values{"from": {from.Format(time.RFC3339Nano)}, "until": {until.Format(time.RFC3339Nano)}}}}, nil
}
