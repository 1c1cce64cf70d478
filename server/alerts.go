package server

import (
	"time"

	"github.com/tuskqueue/tusk/server/alert"
	"github.com/tuskqueue/tusk/server/notify"
)

// Alert is an alert as the API shows it. Its receivers are shown without secrets.
type Alert struct {
	Name       string    `json:"name"`
	Kind       string    `json:"kind"`
	Words      string    `json:"words" doc:"what the kind watches"`
	Queue      string    `json:"queue,omitempty" doc:"empty: all"`
	Schedule   string    `json:"schedule,omitempty" doc:"empty: all"`
	Over       Duration  `json:"over,omitempty"`
	Rate       int64     `json:"rate,omitempty" doc:"tasks in a minute"`
	For        Duration  `json:"for,omitempty" doc:"how long the condition must last before receivers are notified"`
	Repeat     Duration  `json:"repeat,omitempty" doc:"how often receivers are notified again while it lasts"`
	Slack      []string  `json:"slack,omitempty" doc:"only the host of each URL"`
	Webhooks   []string  `json:"webhooks,omitempty"`
	Mail       []string  `json:"mail,omitempty"`
	State      string    `json:"state" doc:"ok, pending or firing"`
	Text       string    `json:"text,omitempty" doc:"what it found when it last changed"`
	Since      time.Time `json:"since,omitzero" doc:"since when the condition has held"`
	Told       time.Time `json:"told,omitzero" doc:"when its receivers were last notified that it fires"`
	MutedUntil time.Time `json:"muted_until,omitzero"`
	Waiting    int       `json:"waiting" doc:"messages that have not arrived yet"`
	Dropped    int64     `json:"dropped" doc:"messages that were given up"`
	Sent       time.Time `json:"sent,omitzero" doc:"when a message last arrived"`
	Failed     time.Time `json:"failed,omitzero" doc:"when one last did not"`
	Error      string    `json:"error,omitempty" doc:"why"`
	CreatedAt  time.Time `json:"created_at"`
	CreatedBy  string    `json:"created_by"`
}

// AlertList is a list of alerts.
type AlertList struct {
	Alerts  []Alert   `json:"alerts"`
	Watched time.Time `json:"watched,omitzero" doc:"when a server last checked them"`
}

// NewAlert is an alert with the secret of its first webhook, which is never shown again.
type NewAlert struct {
	Secret string `json:"secret,omitempty"`
	Alert  Alert  `json:"alert"`
}

func viewAlert(a alert.Alert) Alert {
	v := Alert{Name: a.Name, Kind: string(a.Kind), Words: a.Kind.Words(), Queue: a.Queue, Schedule: a.Schedule,
		Over: Duration(a.Over), Rate: a.Rate,
		For: Duration(a.For), Repeat: Duration(a.Repeat), State: a.Stands(), Text: a.Text, Since: utc(a.Since),
		Told:       utc(a.Told),
		MutedUntil: utc(a.MutedUntil), Waiting: len(a.Owed), Dropped: a.Dropped, Sent: utc(a.Arrived), Failed: utc(a.Failed),
		Error:     a.Error,
		CreatedAt: utc(a.CreatedAt), CreatedBy: a.CreatedBy}
	for i := range a.To {
		r := &a.To[i]
		switch r.Via {
		case notify.Slack:
			v.Slack = append(v.Slack, r.Shown())
		case notify.Webhook:
			v.Webhooks = append(v.Webhooks, r.Shown())
		default:
			v.Mail = append(v.Mail, r.Shown())
		}
	}
	return v
}

func listAlerts(c *call, _ struct{}) (list AlertList, err error) {
	list.Alerts = []Alert{}
	all, err := c.alerts.List(c.r.Context())
	if err != nil {
		return list, err
	}
	for _, a := range all {
		if c.who.SeesAllOf(a.Queue) {
			list.Alerts = append(list.Alerts, viewAlert(a))
		}
	}
	watched, err := c.alerts.Watched(c.r.Context())
	list.Watched = utc(watched)
	return list, err
}

type byAlert struct {
	Name string `path:"name" rule:"name"`
}

func getAlert(c *call, in byAlert) (Alert, error) {
	a, err := c.alerts.Get(c.r.Context(), in.Name)
	if err == nil && !c.who.SeesAllOf(a.Queue) {
		err = alert.ErrNotFound
	}
	if err != nil {
		return Alert{}, err
	}
	return viewAlert(a), nil
}

type putAlertInput struct {
	byAlert
	meant
	Body AlertInput
}

// AlertInput is an alert that is created or changed. If no receiver is given, the alert keeps its old ones.
type AlertInput struct {
	Kind     string   `json:"kind" enum:"oldest,stalled,discarded,missed,no_worker,no_leader"`
	Queue    string   `json:"queue,omitempty" rule:"optional-name" doc:"default: all"`
	Schedule string   `json:"schedule,omitempty" rule:"optional-name" doc:"for missed; default: all"`
	Over     Duration `json:"over,omitempty" doc:"1s to 30d; default for oldest and stalled: 5m; for missed: 1m"`
	Rate     int64    `json:"rate,omitempty" minimum:"0" maximum:"1000000" doc:"discarded: fires above this many a minute"`
	For      Duration `json:"for,omitempty" doc:"how long it must last before the first notice, up to 30d; default: 0s"`
	Repeat   Duration `json:"repeat,omitempty" doc:"how often to notify again while it lasts, 1m to 30d; default: never"`
	Slack    []string `json:"slack,omitempty" maxItems:"10" rule:"url" doc:"URLs of incoming webhooks"`
	Webhooks []string `json:"webhooks,omitempty" maxItems:"10" rule:"url"`
	Mail     []string `json:"mail,omitempty" maxItems:"10" rule:"mail" doc:"addresses"`
}

func putAlert(c *call, in putAlertInput) (NewAlert, error) {
	b := in.Body
	c.target, c.detail = short(in.Name), b.Kind
	if err := c.mayName(in.meant, b.Queue); err != nil {
		return NewAlert{}, err
	}
	secret, a, err := c.alerts.Put(c.r.Context(), alert.Rule{Name: in.Name, Kind: alert.Kind(b.Kind), Queue: b.Queue,
		Schedule: b.Schedule, Over: time.Duration(b.Over), Rate: b.Rate, For: time.Duration(b.For),
		Repeat: time.Duration(b.Repeat), To: notify.Receivers(b.Slack, b.Webhooks, b.Mail)}, c.who.Name)
	return NewAlert{secret, viewAlert(a)}, err
}

func removeAlert(c *call, in byAlert) (nothing, error) {
	c.target = short(in.Name)
	return nothing{}, c.alerts.Remove(c.r.Context(), in.Name)
}

func testAlert(c *call, in byAlert) (Alert, error) {
	c.target = short(in.Name)
	if _, err := getAlert(c, in); err != nil {
		return Alert{}, err
	}
	if _, err := c.alerts.Test(c.r.Context(), in.Name); err != nil {
		return Alert{}, err
	}
	return getAlert(c, in)
}

type muteAlertInput struct {
	byAlert
	Body struct {
		For Duration `json:"for" doc:"up to 30d; 0s ends a mute"`
	}
}

func muteAlert(c *call, in muteAlertInput) (Alert, error) {
	c.target, c.detail = short(in.Name), in.Body.For.String()
	if _, err := getAlert(c, in.byAlert); err != nil {
		return Alert{}, err
	}
	if err := c.alerts.Mute(c.r.Context(), in.Name, time.Duration(in.Body.For)); err != nil {
		return Alert{}, err
	}
	return getAlert(c, in.byAlert)
}
