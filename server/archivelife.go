package server

import (
	"context"
	"net/http"
	"time"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/archive"
)

// archiveHealth returns the health of the archive that the server reads.
func (s *Server) archiveHealth(ctx context.Context) (archive.Health, error) {
	return archive.Examine(ctx, s.client.Store(), s.config.Archive, time.Now())
}

// examineEvery is how often a server examines its archive.
const examineEvery = 10 * time.Second

// watchArchive updates the archive's state for the health checks until ctx ends.
func (s *Server) watchArchive(ctx context.Context) {
	for {
		health, err := s.archiveHealth(ctx)
		if err == nil && string(health.State) != s.archiveState() {
			s.log.Info("archive", "state", health.State, "failing", health.Failing)
			s.archived.Store(string(health.State))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(examineEvery):
		}
	}
}

// archiveState returns the archive's state when it was last examined, or "" if there is no archive.
func (s *Server) archiveState() string {
	if s.config.Archive == nil {
		return ""
	}
	if state, ok := s.archived.Load().(string); ok {
		return state
	}
	return "unknown"
}

type keepArchiveInput struct {
	meantQueue
	Body struct {
		Keep Keeping `json:"keep" doc:"from the end of a task"`
	}
}

type keepAllInput struct {
	Body struct {
		Keep Keeping `json:"keep" doc:"from the end of a task"`
	}
}

func keepInArchive(c *call, in keepArchiveInput) (ArchiveStatus, error) {
	if err := c.mayName(in.meant, in.Queue); err != nil {
		return ArchiveStatus{}, err
	}
	return c.keepArchived(in.Queue, &in.Body.Keep)
}

func keepAllInArchive(c *call, in keepAllInput) (ArchiveStatus, error) {
	return c.keepArchived("", &in.Body.Keep)
}

func keepArchivedLikeOthers(c *call, in byQueue) (ArchiveStatus, error) {
	return c.keepArchived(in.Queue, nil)
}

// keepArchived sets how long the tasks of a queue are kept in the archive. Nil means the default.
func (c *call) keepArchived(queue string, keep *Keeping) (ArchiveStatus, error) {
	c.target = short(queue)
	if queue != "" {
		if err := tusk.ValidateName("queue", queue); err != nil {
			return ArchiveStatus{}, err
		}
	}
	var setting *time.Duration
	if keep != nil {
		d := time.Duration(*keep)
		if d == tusk.Forever {
			d = 0
		}
		setting = &d
	}
	if err := archive.SetRetention(c.r.Context(), c.client.Store(), queue, setting); err != nil {
		return ArchiveStatus{}, archiveProblem(err)
	}
	return getArchive(c, struct{}{})
}

// ArchiveGone is what is deleted from the archive.
type ArchiveGone struct {
	Tasks int64 `json:"tasks"`
	Files int   `json:"files" doc:"deleted, or rewritten without those tasks"`
	Bytes int64 `json:"bytes"`
}

type dryInput struct {
	Body *struct {
		DryRun bool `json:"dry_run,omitempty" doc:"only report what would be deleted"`
	}
}

// pruneArchive reports what is to be deleted, and asks the archiving process to delete it within seconds.
func pruneArchive(c *call, in dryInput) (ArchiveGone, error) {
	shelf, err := c.shelf()
	if err != nil {
		return ArchiveGone{}, err
	}
	gone, err := shelf.Prunable(c.r.Context(), c.client.Store())
	if err != nil {
		return ArchiveGone{}, archiveProblem(err)
	}
	c.target = plural(int(gone.Tasks), "task")
	if in.Body != nil && in.Body.DryRun {
		c.detail = "dry run"
	} else if err := archive.RequestPrune(c.r.Context(), c.client.Store()); err != nil {
		return ArchiveGone{}, err
	}
	return ArchiveGone{gone.Tasks, gone.Files, gone.Bytes}, nil
}

// Erasure is a request to delete all tasks of a tenant from the archive.
type Erasure struct {
	ID     string    `json:"id,omitempty" doc:"absent: it was a dry run"`
	Tenant string    `json:"tenant"`
	State  string    `json:"state" enum:"waiting,held,done,counted" doc:"held: until holds change. counted: a dry run"`
	Tasks  int64     `json:"tasks" doc:"deleted, or for a dry run: would be deleted"`
	Files  int       `json:"files" doc:"deleted, or rewritten without them"`
	Held   int64     `json:"held" doc:"tasks that are kept by holds"`
	By     string    `json:"by,omitempty"`
	At     time.Time `json:"at,omitzero" doc:"when it was requested"`
	Done   time.Time `json:"done_at,omitzero"`
	Error  string    `json:"error,omitempty" doc:"why it does not continue; it is retried"`
}

// ErasureList is a list of erasures.
type ErasureList struct {
	Erasures []Erasure `json:"erasures"`
}

func viewErasure(e archive.Erasure) Erasure {
	return Erasure{e.ID.String(), e.Tenant, string(e.State), e.Tasks, e.Files, e.Held, e.By, utc(e.At),
		utc(e.Done), e.Error}
}

type eraseInput struct {
	Body struct {
		Tenant string `json:"tenant" rule:"name"`
		DryRun bool   `json:"dry_run,omitempty" doc:"only report what would be deleted"`
	}
}

func eraseTenant(c *call, in eraseInput) (Erasure, error) {
	c.target = short(in.Body.Tenant)
	shelf, err := c.shelf()
	if err != nil {
		return Erasure{}, err
	}
	if err := tusk.ValidateName("tenant", in.Body.Tenant); err != nil {
		return Erasure{}, err
	}
	if in.Body.DryRun {
		c.detail = "dry run"
		gone, err := shelf.Erasable(c.r.Context(), c.client.Store(), in.Body.Tenant)
		return Erasure{Tenant: in.Body.Tenant, State: "counted", Tasks: gone.Tasks, Files: gone.Files}, archiveProblem(err)
	}
	e, err := archive.RequestErasure(c.r.Context(), c.client.Store(), tusk.NewID(), in.Body.Tenant, c.who.Name)
	c.detail = e.ID.String()
	return viewErasure(e), err
}

func listErasures(c *call, _ struct{}) (ErasureList, error) {
	list := ErasureList{Erasures: []Erasure{}}
	all, err := archive.Erasures(c.r.Context(), c.client.Store())
	for _, e := range all {
		list.Erasures = append(list.Erasures, viewErasure(e))
	}
	return list, err
}

// Hold is a legal hold: tasks of the archive that match it are neither pruned nor erased.
type Hold struct {
	Name   string    `json:"name"`
	Queue  string    `json:"queue,omitempty"`
	Tenant string    `json:"tenant,omitempty"`
	From   time.Time `json:"from,omitzero" doc:"tasks that ended then or later"`
	Until  time.Time `json:"until,omitzero" doc:"tasks that ended before"`
	Reason string    `json:"reason,omitempty"`
	By     string    `json:"by,omitempty"`
	At     time.Time `json:"at"`
}

// HoldList is a list of holds.
type HoldList struct {
	Holds []Hold `json:"holds"`
}

func viewHold(h archive.Hold) Hold {
	return Hold{h.Name, h.Queue, h.Tenant, utc(h.From), utc(h.Until), h.Reason, h.By, utc(h.At)}
}

func listHolds(c *call, _ struct{}) (HoldList, error) {
	list := HoldList{Holds: []Hold{}}
	all, err := archive.Holds(c.r.Context(), c.client.Store())
	for _, h := range all {
		list.Holds = append(list.Holds, viewHold(h))
	}
	return list, err
}

type holdInput struct {
	meant
	Name string `path:"name" rule:"name"`
	Body struct {
		Queue  string   `json:"queue,omitempty" rule:"optional-name"`
		Tenant string   `json:"tenant,omitempty" rule:"optional-name"`
		From   *Instant `json:"from,omitempty" doc:"tasks that ended then or later"`
		Until  *Instant `json:"until,omitempty" doc:"tasks that ended before"`
		Reason string   `json:"reason,omitempty" rule:"reason"`
		All    bool     `json:"all,omitempty" doc:"confirms that every archived task is meant"`
	}
}

func putHold(c *call, in holdInput) (Hold, error) {
	c.target = short(in.Name)
	h := archive.Hold{Name: in.Name, Queue: in.Body.Queue, Tenant: in.Body.Tenant, From: instant(in.Body.From),
		Until:  instant(in.Body.Until),
		Reason: in.Body.Reason, By: c.who.Name, At: time.Now().UTC()}
	if in.Body.All != (h.Queue == "" && h.Tenant == "" && h.From.IsZero() && h.Until.IsZero()) {
		return Hold{}, fieldProblem(http.StatusUnprocessableEntity, "all_or_filter", "all",
			"say what is held: queue, tenant, from, until, or \"all\": true")
	}
	if len(h.Reason) > maxReason {
		return Hold{}, fieldProblem(http.StatusUnprocessableEntity, "too_long", "reason", "has more than %d bytes", maxReason)
	}
	for what, name := range map[string]string{"hold": h.Name, "queue": h.Queue, "tenant": h.Tenant} {
		if name == "" {
			continue
		}
		if err := tusk.ValidateName(what, name); err != nil {
			return Hold{}, err
		}
	}
	if err := c.mayName(in.meant, h.Queue); err != nil {
		return Hold{}, err
	}
	if err := archive.PutHold(c.r.Context(), c.client.Store(), h, longest/2); err != nil {
		return Hold{}, archiveProblem(err)
	}
	return viewHold(h), nil
}

type byHold struct {
	Name string `path:"name" rule:"name"`
}

func removeHold(c *call, in byHold) (nothing, error) {
	c.target = short(in.Name)
	return nothing{}, archiveProblem(archive.RemoveHold(c.r.Context(), c.client.Store(), in.Name))
}
