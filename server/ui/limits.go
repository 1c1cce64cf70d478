package ui

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/duration"
	"github.com/tuskqueue/tusk/server/query"
	"github.com/tuskqueue/tusk/store"
)

type limitsRow struct {
	Queue   string
	Limits  tusk.Limits
	Held    int64 // tasks that have a turn
	Running int64
	Pending int64
	Own     int // tenants with their own limits
}

type limitsData struct {
	Rows    []limitsRow
	Form    limitsForm
	Problem string
	Of      string           // queue whose turns are shown; empty: none
	Turns   []tusk.TurnCount // the tasks that wait first
	More    bool             // not all groups were searched
}

// TurnGroups is the number of groups that a look at turns reads.
func (limitsData) TurnGroups() int { return query.TurnGroups }

// TurnHeads is the number of waiting tasks per group that it reads.
func (limitsData) TurnHeads() int { return query.TurnHeads }

// limitsForm is a queue's limits as shown in a form. An empty field means no limit.
type limitsForm struct {
	Queue, Concurrency, PerTenant, PerPartition, PerWorker string
	Rate, TenantRate, PartitionRate                        string
	Sliding, BlockOnRetry, Edit                            bool
}

func limits(v *visit) (answer, error) { return v.limits(limitsForm{}, nil) }

func (v *visit) limits(f limitsForm, problem error) (a answer, err error) {
	a = answer{page: "limits", title: "Limits", section: "limits"}
	d := limitsData{Form: f}
	if d.Problem, err = a.explain(problem); err != nil {
		return a, err
	}
	all, err := v.client.Limits(v.r.Context())
	if err != nil {
		return a, err
	}
	queues, err := v.client.Queues(v.r.Context())
	if err != nil {
		return a, err
	}
	counts := map[string]map[tusk.State]int64{}
	for _, q := range queues {
		counts[q.Name] = q.Tasks
	}
	held, _, err := query.Turns(v.r.Context(), v.client, "", 1, 1)
	if err != nil {
		return a, err
	}
	for _, queue := range slices.Sorted(maps.Keys(all)) {
		if v.who.SeesQueue(queue) {
			l := all[queue]
			d.Rows = append(d.Rows, limitsRow{queue, l, heldIn(queue, held), counts[queue][store.Running],
				counts[queue][store.Pending], len(l.Tenants)})
		}
	}
	if edit := v.r.URL.Query().Get("edit"); edit != "" && problem == nil {
		if l, ok := all[edit]; ok && v.who.SeesQueue(edit) {
			d.Form = formOfLimits(edit, l)
		}
	}
	if of := v.r.URL.Query().Get("turns"); of != "" && v.who.SeesQueue(of) {
		d.Of = of
		d.Turns, d.More, err = query.Turns(v.r.Context(), v.client, of, query.TurnGroups, query.TurnHeads)
		if err != nil {
			return a, err
		}
	}
	a.data = d
	return a, nil
}

func heldIn(queue string, counts []tusk.TurnCount) (held int64) {
	for _, t := range counts {
		if t.Queue == queue {
			held += t.Held
		}
	}
	return held
}

func formOfLimits(queue string, l tusk.Limits) limitsForm {
	f := limitsForm{Queue: queue, Concurrency: some(l.Concurrency), PerTenant: some(l.PerTenant),
		PerPartition: some(l.PerPartition), PerWorker: some(l.PerWorker),
		Rate: rateText(l.Rate), TenantRate: rateText(l.TenantRate), PartitionRate: rateText(l.PartitionRate),
		BlockOnRetry: l.BlockOnRetry, Edit: true}
	for _, r := range []*tusk.Rate{l.Rate, l.TenantRate, l.PartitionRate} {
		f.Sliding = f.Sliding || r != nil && r.Algorithm == tusk.SlidingWindow
	}
	return f
}

func some(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// rateText formats a rate as forms and the command line read it: 100/1m.
func rateText(r *tusk.Rate) string {
	if r == nil {
		return ""
	}
	return strconv.Itoa(r.Allowed) + "/" + duration.Text(r.Period)
}

// putLimits sets the limits in the form and leaves the rest of a queue's limits alone, which are those of single
// tenants.
func putLimits(v *visit) (answer, error) {
	p := v.r.PostForm
	f := limitsForm{Queue: strings.TrimSpace(p.Get("queue")), Concurrency: p.Get("concurrency"),
		PerTenant: p.Get("per_tenant"), PerPartition: p.Get("per_partition"), PerWorker: p.Get("per_worker"),
		Rate: p.Get("rate"), TenantRate: p.Get("tenant_rate"), PartitionRate: p.Get("partition_rate"),
		Sliding: p.Get("sliding") != "", BlockOnRetry: p.Get("block_on_retry") != ""}
	v.target = short(f.Queue)
	ask, err := v.maySet(f.Queue, "limits", "/limits")
	if ask.page != "" {
		return ask, nil
	}
	if err == nil {
		err = v.client.ChangeLimits(v.r.Context(), f.Queue, f.apply)
	}
	if err != nil {
		return v.limits(f, err)
	}
	return goTo("/limits", "saved"), nil
}

func (f limitsForm) apply(l *tusk.Limits) error {
	var problems [7]error
	l.Concurrency, problems[0] = number(f.Concurrency)
	l.PerTenant, problems[1] = number(f.PerTenant)
	l.PerPartition, problems[2] = number(f.PerPartition)
	l.PerWorker, problems[3] = number(f.PerWorker)
	l.Rate, problems[4] = parseRate(f.Rate, f.Sliding)
	l.TenantRate, problems[5] = parseRate(f.TenantRate, f.Sliding)
	l.PartitionRate, problems[6] = parseRate(f.PartitionRate, f.Sliding)
	l.BlockOnRetry = f.BlockOnRetry
	if err := errors.Join(problems[:4]...); err != nil {
		return failure(http.StatusBadRequest, "Limits are whole numbers; leave a field empty for none.")
	}
	return errors.Join(problems[4:]...)
}

func parseRate(text string, sliding bool) (*tusk.Rate, error) {
	if text = strings.ReplaceAll(text, " ", ""); text == "" {
		return nil, nil
	}
	allowed, period, _ := strings.Cut(text, "/")
	n, err := strconv.Atoi(allowed)
	if period != "" && (period[0] < '0' || period[0] > '9') {
		period = "1" + period // for example 100/m
	}
	d, err2 := duration.Parse(period)
	if err != nil || err2 != nil {
		return nil, failure(http.StatusBadRequest, "A rate is a number of starts and a period, like 100/1m.")
	}
	r := &tusk.Rate{Allowed: n, Period: d}
	if sliding {
		r.Algorithm = tusk.SlidingWindow
	}
	return r, nil
}

func removeLimits(v *visit) (answer, error) {
	queue := v.r.PathValue("queue")
	v.target = short(queue)
	if err := v.mayChangeAll(queue); err != nil {
		return answer{}, err
	}
	if v.r.PostFormValue("confirm") != "yes" {
		return answer{page: "confirm", title: "Remove the limits?", section: "limits", data: confirmation{
			Question: "Remove the limits of " + short(queue) + "?",
			Detail:   "Tasks that wait for their turn get it, and tenants no longer take turns.", Button: "Remove",
			Action: v.url("limits", queue, "remove"), Back: v.url("limits")}}, nil
	}
	return goTo("/limits", "removed"), v.client.RemoveLimits(v.r.Context(), queue)
}

type tenantsData struct {
	Tenants []tenantRow
	Looked  int
	Whole   bool
}

type tenantRow struct {
	query.TenantSum
	Own []ownLimits
}

// ownLimits are a tenant's own limits in a queue.
type ownLimits struct {
	Queue  string
	Limits tusk.TenantLimits
	Set    bool // the tenant has its own limits
}

// tenantLimits returns the tenants' own limits, by tenant.
func (v *visit) tenantLimits(ctx context.Context) (map[string][]ownLimits, error) {
	all, err := v.client.Limits(ctx)
	own := map[string][]ownLimits{}
	for _, queue := range slices.Sorted(maps.Keys(all)) {
		for name, t := range all[queue].Tenants {
			if v.who.Sees(queue, name) {
				own[name] = append(own[name], ownLimits{queue, t, true})
			}
		}
	}
	return own, err
}

func tenants(v *visit) (answer, error) {
	own, err := v.tenantLimits(v.r.Context())
	if err != nil {
		return answer{}, err
	}
	sums, looked, whole, err := query.Tenants(v.r.Context(), v.client, v.who, slices.Collect(maps.Keys(own)),
		query.SurveyBudget)
	if err != nil {
		return answer{}, err
	}
	d := tenantsData{Looked: looked, Whole: whole}
	for _, sum := range sums {
		for _, name := range stateNames {
			sum.Counts[name] += 0
		}
		d.Tenants = append(d.Tenants, tenantRow{sum, own[sum.Name]})
	}
	return answer{page: "tenants", title: "Tenants", section: "tenants", data: d}, nil
}

type tenantData struct {
	Name   string
	Queues []ownLimits // all queues with limits
	Tasks  []tusk.TaskInfo
	More   bool
	Filter url.Values
}

const tenantTasks = 20

func tenant(v *visit) (answer, error) {
	name := v.r.PathValue("tenant")
	if err := tusk.ValidateName("tenant", name); err != nil {
		return answer{}, tusk.ErrNotFound
	}
	all, err := v.client.Limits(v.r.Context())
	if err != nil {
		return answer{}, err
	}
	d := tenantData{Name: name, Filter: url.Values{"tenant": {name}}}
	for _, queue := range slices.Sorted(maps.Keys(all)) {
		if v.who.Sees(queue, name) {
			t, set := all[queue].Tenants[name]
			d.Queues = append(d.Queues, ownLimits{queue, t, set})
		}
	}
	tasks, more, err := query.Visible(v.r.Context(), v.client, v.who,
		tusk.Filter{Tenants: []string{name}, Limit: tenantTasks})
	if err != nil {
		return answer{}, err
	}
	if d.Tasks, d.More = tasks, !more.IsZero(); len(tasks) == 0 && len(v.who.Tenants) > 0 && !v.who.Sees("", name) &&
		len(d.Queues) == 0 {
		return answer{}, tusk.ErrNotFound
	}
	return answer{page: "tenant", title: name, section: "tenants", data: d}, nil
}

// putTenantLimits changes a tenant's own limits in a queue. If both are empty, it removes them.
func putTenantLimits(v *visit) (answer, error) {
	name, queue := v.r.PathValue("tenant"), v.r.PostFormValue("queue")
	v.target, v.detail = short(name), short(queue)
	concurrency, err := number(v.r.PostFormValue("concurrency"))
	weight := 0.0
	if text := v.r.PostFormValue("weight"); text != "" && err == nil {
		weight, err = strconv.ParseFloat(text, 64)
	}
	if err != nil {
		return answer{}, failure(http.StatusBadRequest,
			"The concurrency is a whole number, and the weight is a number like 2 or 0.5.")
	}
	to := "/tenants/" + url.PathEscape(name)
	if ask, err := v.maySet(queue, "tenants", to); err != nil || ask.page != "" {
		return ask, err
	}
	err = v.client.SetTenantLimits(v.r.Context(), queue, name, tusk.TenantLimits{Concurrency: concurrency, Weight: weight})
	return goTo(to, "saved"), err
}
