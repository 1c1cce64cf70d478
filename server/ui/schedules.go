package ui

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/duration"
	"github.com/tuskqueue/tusk/server/query"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/why"
)

func schedules(v *visit) (answer, error) {
	all, err := v.client.Schedules(v.r.Context())
	if err != nil {
		return answer{}, err
	}
	var seen []tusk.ScheduleInfo
	for _, s := range all {
		if v.who.Sees(s.Queue, s.Tenant) {
			seen = append(seen, s)
		}
	}
	results, err := v.results(seen...)
	return answer{page: "schedules", title: "Schedules", section: "schedules", watch: v.lists(),
		data: schedulesData{seen, results}}, err
}

type schedulesData struct {
	Schedules []tusk.ScheduleInfo
	Results   map[string]string // the states of their last tasks, by task id
}

// results reads the states of the schedules' last tasks, for at most 1,000 schedules.
func (v *visit) results(all ...tusk.ScheduleInfo) (map[string]string, error) {
	var ids []tusk.ID
	for _, s := range all {
		if id, err := tusk.ParseID(s.LastTask); err == nil && len(ids) < store.MaxPage {
			ids = append(ids, id)
		}
	}
	states := map[string]string{}
	if len(ids) == 0 {
		return states, nil
	}
	tasks, err := v.client.List(v.r.Context(), tusk.Filter{IDs: ids, Limit: len(ids), NoArgs: true})
	for _, t := range tasks {
		states[t.ID.String()] = t.State.String()
	}
	return states, err
}

// history lists the newest tasks that a schedule has enqueued. It looks only at the newest tasks of its kind and
// queue.
func (v *visit) history(s tusk.ScheduleInfo) (own []tusk.TaskInfo, err error) {
	f := tusk.Filter{Queues: []string{s.Queue}, Kinds: []string{s.Kind}, Limit: shownHistory * 10, NoArgs: true}
	if s.Tenant != "" {
		f.Tenants = []string{s.Tenant}
	}
	tasks, _, err := query.Visible(v.r.Context(), v.client, v.who, f)
	for _, t := range tasks {
		if t.Schedule == s.Name && len(own) < shownHistory {
			own = append(own, t)
		}
	}
	return own, err
}

const shownHistory = 15

// tick is a time at which a schedule fires, with its text in the schedule's zone.
type tick struct {
	time.Time
	Own string
}

// scheduleForm is a schedule as shown in a form.
type scheduleForm struct {
	Name, Spec, Zone, Start, Kind, Queue, Tenant, Args, Missed, Overlap, Tags string
	Priority, MaxAttempts, Timeout, Jitter                                    string
	Problem                                                                   string
	New                                                                       bool
}

type scheduleData struct {
	tusk.ScheduleInfo
	Form     scheduleForm
	ZoneName string
	Ticks    []tick
	Why      []why.Reason // why it does not fire now
	Results  map[string]string
	History  []tusk.TaskInfo
}

const shownTicks = 8

func (v *visit) findSchedule() (tusk.ScheduleInfo, error) {
	v.target = v.r.PathValue("name")
	all, err := v.client.Schedules(v.r.Context())
	if err != nil {
		return tusk.ScheduleInfo{}, err
	}
	for _, s := range all {
		if s.Name == v.target {
			return s, v.knows(s)
		}
	}
	return tusk.ScheduleInfo{}, tusk.ErrNotFound
}

// knows rejects a schedule that the visitor may not see, as if it did not exist.
func (v *visit) knows(s tusk.ScheduleInfo) error {
	if !v.who.Sees(s.Queue, s.Tenant) {
		return tusk.ErrNotFound
	}
	return nil
}

func schedule(v *visit) (answer, error) {
	s, err := v.findSchedule()
	if err != nil {
		return answer{}, err
	}
	d := scheduleData{ScheduleInfo: s, Form: v.formOf(s), ZoneName: cmp.Or(s.Zone, "UTC")}
	zone, err := time.LoadLocation(d.ZoneName)
	if err != nil { // this machine does not know the zone
		zone, d.ZoneName = time.UTC, "UTC"
	}
	if spec, err := s.Parse(); err == nil {
		next := s.Next
		if now := time.Now(); next.Before(now) {
			next = spec.Next(now)
		}
		for ; len(d.Ticks) < shownTicks && !next.IsZero(); next = spec.Next(next) {
			d.Ticks = append(d.Ticks, tick{next, next.In(zone).Format("Mon 2006-01-02 15:04:05")})
		}
	}
	facts, err := why.GatherSchedule(v.r.Context(), v.client, s)
	if err != nil {
		return answer{}, err
	}
	d.Why = why.ExplainSchedule(facts)
	if d.Results, err = v.results(s); err != nil {
		return answer{}, err
	}
	if d.History, err = v.history(s); err != nil {
		return answer{}, err
	}
	return answer{page: "schedule", title: s.Name, section: "schedules", watch: v.lists(), data: d}, nil
}

func (v *visit) formOf(s tusk.ScheduleInfo) scheduleForm {
	f := scheduleForm{Name: s.Name, Spec: s.Spec, Zone: s.Zone, Kind: s.Kind, Queue: s.Queue, Tenant: s.Tenant,
		Args:   v.code(s.Args, true).Text,
		Missed: string(s.Missed), Overlap: string(s.Overlap), Tags: strings.Join(s.Tags, ", "),
		Priority: strconv.Itoa(int(s.Priority))}
	if !s.Start.IsZero() {
		f.Start = s.Start.UTC().Format(time.RFC3339Nano)
	}
	if s.Jitter > 0 {
		f.Jitter = duration.Text(s.Jitter)
	}
	// Read only the settings that the form shows.
	var settings struct {
		MaxAttempts int           `json:"max_attempts"`
		Timeout     time.Duration `json:"timeout"`
	}
	if json.Unmarshal(s.Settings, &settings) == nil {
		if settings.MaxAttempts > 0 {
			f.MaxAttempts = strconv.Itoa(settings.MaxAttempts)
		}
		if settings.Timeout > 0 {
			f.Timeout = duration.Text(settings.Timeout)
		}
	}
	return f
}

func newSchedule(*visit) (answer, error) {
	return answer{page: "scheduleform", title: "New schedule", section: "schedules",
		data: scheduleForm{Queue: tusk.DefaultQueue, Zone: "UTC", Args: "{}", New: true}}, nil
}

func putSchedule(v *visit) (answer, error) {
	form := v.r.PostForm
	f := scheduleForm{Name: form.Get("name"), Spec: strings.TrimSpace(form.Get("spec")), Zone: form.Get("zone"),
		Start: form.Get("start"), Kind: form.Get("kind"),
		Queue: form.Get("queue"), Tenant: form.Get("tenant"), Args: form.Get("args"), Missed: form.Get("missed"),
		Overlap: form.Get("overlap"),
		Tags:    form.Get("tags"), Priority: form.Get("priority"), MaxAttempts: form.Get("max_attempts"),
		Timeout: form.Get("timeout"),
		Jitter:  form.Get("jitter"), New: form.Get("new") == "1"}
	v.target, v.detail = f.Name, f.Spec
	s, err := v.scheduleOf(f)
	if err == nil {
		err = v.client.PutScheduleIf(v.r.Context(), s, func(old tusk.ScheduleInfo) error { return v.mayPut(f, old) })
	}
	if err == nil {
		return goTo("/schedules/"+s.Name, "saved"), nil
	}
	a := answer{page: "scheduleform", title: "Schedule", section: "schedules"}
	if f.Problem, err = a.explain(err); err != nil {
		return answer{}, err
	}
	a.data = f
	return a, nil
}

// mayPut fails if the form would overwrite an existing schedule: it is for a new schedule, or the visitor may not see
// the old one.
func (v *visit) mayPut(f scheduleForm, old tusk.ScheduleInfo) error {
	if f.New || !v.who.Sees(old.Queue, old.Tenant) {
		return failure(http.StatusConflict, "A schedule of that name exists already.")
	}
	return nil
}

func (v *visit) scheduleOf(f scheduleForm) (s tusk.Schedule, err error) {
	if !v.who.Sees(cmp.Or(f.Queue, tusk.DefaultQueue), f.Tenant) {
		return s, failure(http.StatusForbidden, "You may not use this queue and tenant.")
	}
	all, err := v.client.Schedules(v.r.Context())
	if err != nil {
		return s, err
	}
	var stored []byte
	o := &tusk.Options{Queue: f.Queue, Tenant: f.Tenant, Tags: tags(f.Tags)}
	for _, other := range all {
		if other.Name == f.Name {
			if err := v.mayPut(f, other); err != nil {
				return s, err
			}
			stored, s.Cap, o.Partition = other.Args, other.Cap, other.Partition
			if err := v.keepSettings(other.Settings, o); err != nil {
				return s, err
			}
		}
	}
	priority, err1 := number(f.Priority)
	attempts, err2 := number(f.MaxAttempts)
	if err1 != nil || err2 != nil || priority < -32768 || priority > 32767 {
		return s, failure(http.StatusBadRequest, "Priority and attempts are whole numbers.")
	}
	o.Priority, o.MaxAttempts = int16(priority), attempts
	args, err := v.unmask(f.Args, stored)
	if err != nil {
		return s, err
	}
	s = tusk.Schedule{Name: f.Name, Spec: f.Spec, Zone: f.Zone, Args: tusk.RawArgs{Name: f.Kind, JSON: args}, Options: o,
		Cap: s.Cap, Missed: tusk.MissedPolicy(f.Missed), Overlap: tusk.OverlapPolicy(f.Overlap)}
	if s.Start, err = startOf(f.Start); err != nil {
		return s, err
	}
	if o.Timeout, err = span(f.Timeout); err != nil {
		return s, err
	}
	s.Jitter, err = span(f.Jitter)
	return s, err
}

func startOf(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	at, in, err := when(text)
	if err == nil && at.IsZero() {
		at = time.Now().Add(in)
	}
	return at, err
}

// keepSettings keeps those settings of a schedule's tasks that the form does not show.
func (v *visit) keepSettings(settings []byte, o *tusk.Options) error {
	if len(settings) == 0 {
		return nil
	}
	var kept struct {
		StallTimeout time.Duration     `json:"stall_timeout"`
		Metadata     map[string]string `json:"metadata"`
		Weight       int               `json:"weight"`
		Deadline     time.Time         `json:"deadline"`
		DeadlineIn   time.Duration     `json:"deadline_in"`
		Ephemeral    bool              `json:"ephemeral"`
	}
	if err := json.Unmarshal(settings, &kept); err != nil {
		return fmt.Errorf("settings of the schedule: %w", err)
	}
	o.Backoff = v.client.Describe(store.Task{Settings: settings}).Backoff
	o.StallTimeout, o.Metadata, o.Weight = kept.StallTimeout, kept.Metadata, kept.Weight
	o.Deadline, o.DeadlineIn, o.Ephemeral = kept.Deadline, kept.DeadlineIn, kept.Ephemeral
	return nil
}

// unmask reads args from a form. If they are unchanged, it returns the stored args, including hidden values. Changed
// args must not contain hidden values.
func (v *visit) unmask(text string, stored []byte) (json.RawMessage, error) {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	if len(stored) > 0 && strings.TrimSpace(text) == strings.TrimSpace(v.code(stored, true).Text) {
		return stored, nil
	}
	if strings.Contains(text, `"[hidden]"`) {
		return nil, failure(http.StatusBadRequest,
			"Some values in the args are hidden: leave the args as they are, or write all values anew.")
	}
	return json.RawMessage(text), nil
}

func number(text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	return strconv.Atoi(text)
}

func span(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := duration.Parse(text)
	if err != nil {
		return 0, failure(http.StatusBadRequest,
			"A duration is written like 90s, 15m, 1h30m or 7d, or is a number of seconds.")
	}
	return d, nil
}

func editSchedule(v *visit) (answer, error) {
	s, err := v.findSchedule()
	if err != nil {
		return answer{}, err
	}
	to := "/schedules/" + s.Name
	v.detail = v.r.PathValue("action")
	switch ctx := v.r.Context(); v.detail {
	case "pause":
		return goTo(to, "paused"), v.client.PauseSchedule(ctx, s.Name, v.knows)
	case "resume":
		return goTo(to, "resumed"), v.client.ResumeSchedule(ctx, s.Name, v.knows)
	case "run":
		_, err := v.client.RunSchedule(ctx, s.Name, v.knows)
		return goTo(to, "ran"), err
	case "backfill":
		return v.backfill(s)
	case "remove":
		if v.r.PostFormValue("confirm") != "yes" {
			return answer{page: "confirm", title: "Remove the schedule?", section: "schedules", data: confirmation{
				Question: "Remove the schedule " + s.Name + "?", Detail: "Tasks that it has enqueued stay.", Button: "Remove",
				Action: v.url("schedules", s.Name, "remove"), Back: v.url("schedules", s.Name)}}, nil
		}
		return goTo("/schedules", "removed"), v.client.RemoveSchedule(ctx, s.Name, v.knows)
	default:
		return answer{}, failure(http.StatusNotFound, "There is no such action.")
	}
}
