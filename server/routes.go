package server

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"

	"github.com/tuskqueue/tusk/server/access"
)

// Route is an operation of the API. A route without a permission is not accepted: New fails.
type Route struct {
	Method, Path string
	Need         access.Permission
	Summary      string
	Audit        string // the action in the audit log; empty if not logged
	Status       int    // of success; default 200
	Stream       bool   // may take longer than other routes
	Aggregate    bool   // shows sums over all tenants
	Whole        bool   // shows sums over all queues as well
	Large        bool   // may return megabytes: only few run at a time
	Found        bool   // returns 200 if what it would create exists
	Takes        bool   // its body is bytes, which it reads itself
	Gives        bool   // returns stored JSON, or a range of it

	// A nil result means that the response is written already, or is empty.
	run    func(c *call) ([]byte, error)
	body   reflect.Type // nil if none
	params []param
	answer reflect.Type // nil if none
}

// call is one request.
type call struct {
	*Server
	w      http.ResponseWriter
	r      *http.Request
	route  *Route
	who    access.Identity
	id     string // of the request
	status int    // of the response
	heavy  bool   // it has a large body, or lists tasks
	text   []byte // of the body, as received; nil if it was not read
	memory *stay  // memory of a large request; nil if none
	leave  func() // gives back its place to work; nil if it has none
	over   func() // ends the context of r; see limit
	target string // what it is about, for the audit log
	detail string
	// Undoes what the response gives away, if it cannot be sent. Nil if it gives nothing away.
	unsent func()
	// The request's context without the limit on its time.
	unlimited context.Context
}

// nothing is the body or the response of routes that have none.
type nothing struct{}

// does makes the function of a route from a typed function. In has fields with the tag path, query or header for
// parameters, and a field Body for the body.
func does[In, Out any](r Route, f func(c *call, in In) (Out, error)) Route {
	in := reflect.TypeFor[In]()
	if field, ok := in.FieldByName("Body"); ok {
		r.body = field.Type
	}
	r.params = paramsOf(in)
	if out := reflect.TypeFor[Out](); out != reflect.TypeFor[nothing]() {
		r.answer = out
	}
	r.run = func(c *call) ([]byte, error) {
		var in In
		if err := c.bind(&in); err != nil {
			return nil, err
		}
		if r.Stream {
			c.rest()
		} else if err := c.work(); err != nil {
			return nil, err
		}
		out, err := f(c, in)
		if _, none := any(out).(nothing); none || err != nil {
			return nil, err
		}
		c.text = nil // it is too late for a refusal: the request was carried out
		if text, ready := any(out).(json.RawMessage); ready {
			return text, nil // all requests share it, so none may take memory for it
		}
		body, err := json.Marshal(out)
		c.keep(len(body)) // the rest is garbage now
		return body, err
	}
	return r
}

// Routes is the whole API, in the order of its documentation.
func Routes() []Route {
	const v1 = "/api/v1"
	get := func(path string, need access.Permission, summary string) Route {
		return Route{Method: "GET", Path: v1 + path, Need: need, Summary: summary}
	}
	sums := func(path, summary string) Route {
		r := get(path, access.Read, summary)
		r.Aggregate = true
		return r
	}
	whole := func(path, summary string) Route {
		r := sums(path, summary)
		r.Whole = true
		return r
	}
	post := func(path string, need access.Permission, audit, summary string) Route {
		return Route{Method: "POST", Path: v1 + path, Need: need, Audit: audit, Summary: summary}
	}
	with := func(r Route, change func(*Route)) Route { change(&r); return r }
	created := func(r *Route) { r.Status = http.StatusCreated }
	createdOrFound := func(r *Route) { r.Status, r.Found = http.StatusCreated, true }
	large := func(r *Route) { r.Large = true }
	accepted := func(r *Route) { r.Status = http.StatusAccepted }
	method := func(m string) func(*Route) { return func(r *Route) { r.Method = m } }
	operate := func(r *Route) { r.Need = access.Operate }
	stream := func(r *Route) { r.Stream = true }
	part := func(r *Route) { r.Method, r.Status, r.Stream, r.Takes = "PUT", http.StatusCreated, true, true }
	gives := func(r *Route) { r.Stream, r.Gives = true, true }

	return []Route{
		does(with(post("/tasks", access.Enqueue, "", "Enqueue a task"), createdOrFound), enqueueOne),
		does(with(post("/tasks/batch", access.Enqueue, "", "Enqueue up to 1,000 tasks, all or none"), created), enqueueMany),
		does(with(post("/tasks/large", access.Enqueue, "", "Enqueue a task with args that were uploaded in parts"),
			func(r *Route) { createdOrFound(r); stream(r) }), enqueueLarge),
		does(with(post("/uploads/{upload}/{sha256}", access.Enqueue, "", "Upload a part of large args, of up to 16 MiB"),
			part), putPart),
		does(get("/uploads/{upload}/{sha256}", access.Enqueue, "Check whether a part of an upload is stored"), getPart),
		does(with(get("/tasks/{id}/args", access.Admin, "Download the args of a task as they are, or a range of them"),
			func(r *Route) { gives(r); r.Audit = "tasks.args" }), downloadArgs),
		does(with(get("/tasks/{id}/output", access.Admin, "Download the output of a task as it is, or a range of it"),
			func(r *Route) { gives(r); r.Audit = "tasks.output" }), downloadOutput),
		does(with(get("/tasks", access.Read, "List tasks, newest first"), large), listTasks),
		does(with(get("/tasks/export", access.Read, "Export matching tasks as CSV or JSON lines"),
			func(r *Route) { r.Stream, r.Large = true, true }), exportTasks),
		does(get("/tasks/{id}", access.Read, "Get a task with its attempts, output, progress and logs"), getTask),
		does(get("/tasks/{id}/why", access.Read,
			"Get the reasons why a task does not run, each with the command that changes it"), whyTask),
		does(post("/tasks/{id}/cancel", access.Operate, "tasks.cancel", "Cancel a task; a running task is told to stop"),
			cancelTask),
		does(post("/tasks/{id}/retry", access.Operate, "tasks.retry", "Make a task available again"), retryTask),
		does(post("/tasks/{id}/reprioritize", access.Operate, "tasks.reprioritize",
			"Change the priority of a task that has not started"), reprioritizeTask),
		does(post("/tasks/{id}/move", access.Operate, "tasks.move", "Move a task to another queue"), moveTask),
		does(post("/tasks/{id}/reschedule", access.Operate, "tasks.reschedule", "Change when a task may run"),
			rescheduleTask),
		does(with(post("/tasks/{id}", access.Operate, "tasks.delete", "Delete a task that is not running"), method("DELETE")),
			deleteTask),
		does(post("/tasks/edit", access.Operate, "tasks.edit", "Apply one change to up to 1,000 tasks by id"), editTasks),

		does(with(post("/bulk", access.Operate, "bulk.start", "Apply one change to all matching tasks, in the background"),
			accepted), startBulk),
		does(get("/bulk", access.Read, "List bulk operations, newest first"), listBulk),
		does(get("/bulk/{id}", access.Read, "Get a bulk operation"), getBulk),
		does(post("/bulk/{id}/cancel", access.Operate, "bulk.cancel", "Stop a bulk operation after its current page"),
			cancelBulk),

		does(sums("/queues", "List queues with their depth and settings"), listQueues),
		does(sums("/queues/{queue}", "Get a queue"), getQueue),
		does(with(post("/queues/{queue}", access.Operate, "queues.remove",
			"Remove an unused queue from the lists, with its settings; finished tasks stay"), method("DELETE")),
			removeQueue),
		does(post("/queues/{queue}/pause", access.Operate, "queues.pause", "Pause a queue: workers claim none of its tasks"),
			pauseQueue),
		does(post("/queues/{queue}/resume", access.Operate, "queues.resume", "Resume a queue"), resumeQueue),
		does(with(post("/queues/{queue}/aging", access.Operate, "queues.age",
			"Turn on aging for a queue: its tasks rise while they wait"), method("PUT")), ageQueue),
		does(with(post("/queues/{queue}/aging", access.Operate, "queues.age", "Turn off aging for a queue"),
			method("DELETE")), stopAging),
		does(with(post("/queues/{queue}/retention", access.Admin, "queues.keep",
			"Set the retention of the finished tasks of a queue, replacing the previous one"),
			method("PUT")), keepQueue),
		does(with(post("/queues/{queue}/retention", access.Admin, "queues.keep",
			"Use the default retention for the finished tasks of a queue"), method("DELETE")), keepLikeOthers),

		does(sums("/limits", "List the limits of queues"), listLimits),
		does(sums("/limits/{queue}", "Get the limits of a queue"), getLimits),
		does(with(post("/limits/{queue}", access.Operate, "limits.put",
			"Set the limits of a queue, replacing the previous ones"), method("PUT")), putLimits),
		does(sums("/limits/{queue}/turns", "List who has a turn in a queue and who waits for one, the longest waiting first"),
			listTurns),
		does(with(post("/limits/{queue}/tenants/{tenant}", access.Operate, "limits.put",
			"Set the limits of one tenant of a queue; zeros remove them"), method("PUT")), putTenantLimits),
		does(with(post("/limits/{queue}", access.Operate, "limits.remove", "Remove the limits of a queue"),
			method("DELETE")), removeLimits),
		does(get("/tenants", access.Read, "List tenants with limits, and the tenants of the newest unfinished tasks"),
			listTenants),

		does(
			sums("/pipelines",
				"List pipelines with the depth of their stages, the results of the last hour, and which are stuck"),
			listPipelines),
		does(with(post("/pipelines/{name}", access.Admin, "pipelines.define",
			"Define a pipeline, so that workers in any language can run its stages"), method("PUT")), definePipeline),
		does(with(post("/pipelines/{name}", access.Admin, "pipelines.remove",
			"Remove a pipeline that no worker has any more"), method("DELETE")), removePipeline),
		does(with(post("/pipelines/{name}/start", access.Enqueue, "",
			"Enqueue a task that enters a pipeline, at its first stage or another"), createdOrFound), startPipeline),
		does(with(post("/workflows", access.Enqueue, "", "Enqueue a workflow: a graph of tasks"), created),
			enqueueWorkflow),
		does(with(get("/workflows", access.Read, "List the workflows that the newest tasks belong to"), large),
			listWorkflows),
		does(with(get("/workflows/{id}", access.Read, "Get a workflow with its tasks and what each needs"), large),
			getWorkflow),
		does(post("/workflows/{id}/cancel", access.Operate, "workflows.cancel",
			"Cancel all tasks of a workflow that have not finished"), cancelWorkflow),
		does(post("/workflows/{id}/retry", access.Operate, "workflows.retry",
			"Retry all discarded or cancelled tasks of a workflow, or all tasks from one task on"), retryWorkflow),

		does(with(get("/schedules", access.Read, "List schedules"), large), listSchedules),
		does(get("/schedules/{name}", access.Read, "Get a schedule"), getSchedule),
		does(with(post("/schedules/{name}", access.Operate, "schedules.put", "Create or change a schedule"), method("PUT")),
			putSchedule),
		does(with(post("/schedules/{name}", access.Operate, "schedules.remove", "Remove a schedule"), method("DELETE")),
			removeSchedule),
		does(post("/schedules/{name}/pause", access.Operate, "schedules.pause", "Pause a schedule"),
			pauseSchedule),
		does(post("/schedules/{name}/resume", access.Operate, "schedules.resume", "Resume a schedule"), resumeSchedule),
		does(post("/schedules/{name}/run", access.Operate, "schedules.run", "Enqueue a schedule's task now"), runSchedule),
		does(post("/schedules/{name}/backfill", access.Operate, "schedules.backfill",
			"Enqueue a schedule's task for each tick in a past time range"), backfillSchedule),
		does(get("/schedules/{name}/next", access.Read, "List the next ticks of a schedule"), nextTicks),
		does(get("/schedules/{name}/why", access.Read,
			"Get the reasons why a schedule does not fire, each with the command that changes it"), whySchedule),

		does(sums("/workers", "List live workers"), listWorkers),
		does(post("/workers/{worker}/quiet", access.Operate, "workers.quiet",
			"Make a worker stop claiming until it is woken or ends"), quietWorker),
		does(post("/workers/{worker}/wake", access.Operate, "workers.wake", "Make a quiet worker claim again"), wakeWorker),
		does(
			with(
				whole("/doctor", "Report what is wrong with the database, leader, workers and queues, and how to fix it"),
				operate), diagnose),
		does(with(sums("/stats", "Get statistics of attempts by queue, kind and time slice"), large), listStats),
		does(with(sums("/errors", "List groups of similar errors, latest first"), large), listErrors),
		does(with(post("/errors/{fingerprint}/retry", access.Operate, "errors.retry",
			"Retry all tasks of an error group, in the background"), accepted), retryErrors),
		does(with(sums("/events", "Watch queues and workers, as server-sent events"), stream), streamEvents),

		does(with(post("/lease", access.Work, "", "Lease tasks for a worker, waiting up to 20 s for the first"), stream),
			leaseTasks),
		does(post("/lease/complete", access.Work, "", "Complete a leased task"), completeLease),
		does(with(post("/lease/complete/large", access.Work, "",
			"Complete a leased task with an output that was uploaded in parts"), stream), completeLarge),
		does(post("/lease/wait", access.Work, "",
			"Enqueue children of a leased task, which runs again when they have ended"), waitLease),
		does(with(get("/lease/args", access.Work, "Download the args of a leased task, or a range of them"), gives),
			downloadLeased),
		does(with(get("/lease/inputs", access.Work, "List the tasks that a leased task needed, with their outputs"), large),
			leasedInputs),
		does(with(get("/lease/inputs/{id}", access.Work,
			"Download the output of a task that a leased task needed, or a range of it"), gives), downloadLeasedInput),
		does(with(get("/lease/steps", access.Work, "List the steps of a leased task that have a result"), large),
			leasedSteps),
		does(post("/lease/steps", access.Work, "",
			"Store the result of a step of a leased task, which later attempts find"), keepStep),
		does(with(post("/lease/uploads/{upload}/{sha256}", access.Work, "",
			"Upload a part of a large output, of up to 16 MiB"), part), putPart),
		does(get("/lease/uploads/{upload}/{sha256}", access.Work, "Check whether a part of an upload is stored"), getPart),
		does(post("/lease/fail", access.Work, "", "Fail a leased task: it is retried according to its policy, or discarded"),
			failLease),
		does(post("/lease/extend", access.Work, "", "Extend the lease of a task; says whether the task was cancelled"),
			extendLease),
		does(post("/lease/release", access.Work, "", "Hand a leased task back, without counting the attempt"), releaseLease),
		does(post("/lease/batch", access.Work, "", "End or extend up to 1,000 leased tasks"),
			batchLease),

		does(get("/endpoints", access.Admin, "List endpoints: where the tasks of queues are sent"), listEndpoints),
		does(get("/endpoints/{queue}", access.Admin, "Get the endpoint of a queue"), getEndpoint),
		does(with(post("/endpoints/{queue}", access.Admin, "endpoints.put",
			"Register the endpoint of a queue, or change it; the secret of a new one is shown once"), method("PUT")),
			putEndpoint),
		does(post("/endpoints/{queue}/rotate", access.Admin, "endpoints.rotate",
			"Create a new secret, shown once; the previous one keeps signing for a day"), rotateEndpoint),
		does(with(post("/endpoints/{queue}", access.Admin, "endpoints.remove", "Remove the endpoint of a queue"),
			method("DELETE")), removeEndpoint),

		does(sums("/alerts", "List alerts and their status"), listAlerts),
		does(sums("/alerts/{name}", "Get an alert"), getAlert),
		does(with(post("/alerts/{name}", access.Admin, "alerts.put",
			"Create an alert or change it; the secret of its webhooks is shown once"), method("PUT")), putAlert),
		does(with(post("/alerts/{name}", access.Admin, "alerts.remove", "Remove an alert"), method("DELETE")), removeAlert),
		does(post("/alerts/{name}/test", access.Operate, "alerts.test", "Send a test message to each receiver of an alert"),
			testAlert),
		does(post("/alerts/{name}/mute", access.Operate, "alerts.mute",
			"Mute an alert: no notifications of new conditions for a while; 0s ends it"), muteAlert),

		does(get("/hooks", access.Admin, "List hooks and the status of their deliveries"), listHooks),
		does(get("/hooks/{name}", access.Admin, "Get a hook"), getHook),
		does(with(post("/hooks/{name}", access.Admin, "hooks.put",
			"Create a hook or change it; the secret of a new one is shown once"), method("PUT")), putHook),
		does(with(post("/hooks/{name}", access.Admin, "hooks.remove", "Remove a hook"), method("DELETE")), removeHook),

		does(sums("/archive", "Get the status of the archive, and how long it keeps tasks"), getArchive),
		does(with(get("/archive/tasks", access.Read, "Search the archive for finished tasks that have left the database"),
			large), searchArchive),
		does(get("/archive/tasks/{id}", access.Read, "Get an archived task"), getArchivedTask),
		does(with(post("/archive/tasks/{id}/rerun", access.Operate, "archive.rerun",
			"Run an archived task again, as a new task"), createdOrFound), rerunArchivedTask),
		does(with(post("/archive/reruns", access.Operate, "archive.rerun",
			"Run all matching archived tasks again, in the background; or only count them"), accepted), startRerun),
		does(get("/archive/reruns", access.Read, "List reruns, newest first"), listReruns),
		does(get("/archive/reruns/{id}", access.Read, "Get a rerun"), getRerun),
		does(post("/archive/reruns/{id}/cancel", access.Operate, "archive.rerun.cancel",
			"Stop a rerun after its current page"), cancelRerun),
		does(with(post("/archive/restores", access.Admin, "archive.restore",
			"Put archived tasks back into the database, in the background; or only count them"), accepted),
			startRestore),
		does(get("/archive/restores", access.Admin, "List restores, oldest first"), listRestores),
		does(get("/archive/restores/{id}", access.Admin, "Get a restore"), getRestore),
		does(post("/archive/restores/{id}/cancel", access.Admin, "archive.restore.cancel",
			"Stop a restore; tasks that it has put back stay"), cancelRestore),
		does(with(post("/archive/retention", access.Admin, "archive.keep",
			"Set the default archive retention"), method("PUT")),
			keepAllInArchive),
		does(with(post("/archive/retention/{queue}", access.Admin, "archive.keep",
			"Set the archive retention of a queue"), method("PUT")), keepInArchive),
		does(with(post("/archive/retention/{queue}", access.Admin, "archive.keep",
			"Use the default archive retention for a queue"), method("DELETE")), keepArchivedLikeOthers),
		does(with(post("/archive/prune", access.Admin, "archive.prune",
			"Delete archived tasks that are past their retention, in the background; or only count them"), accepted),
			pruneArchive),
		does(with(post("/archive/erasures", access.Admin, "archive.erase",
			"Delete all tasks of a tenant from the archive, in the background; or only count them"), accepted), eraseTenant),
		does(get("/archive/erasures", access.Admin, "List erasures, oldest first, and when they were done"), listErasures),
		does(get("/archive/holds", access.Admin, "List legal holds"), listHolds),
		does(with(post("/archive/holds/{name}", access.Admin, "archive.hold",
			"Create or change a legal hold: matching archived tasks are neither pruned nor erased"),
			method("PUT")), putHold),
		does(with(post("/archive/holds/{name}", access.Admin, "archive.unhold", "Remove a legal hold"), method("DELETE")),
			removeHold),

		does(get("/me", access.Read, "Get the identity of the caller"), whoAmI),
		does(get("/tokens", access.Admin, "List API tokens"), listTokens),
		does(with(post("/tokens", access.Admin, "tokens.create", "Create an API token; its secret is shown once"), created),
			createToken),
		does(with(post("/tokens/{id}", access.Admin, "tokens.revoke", "Revoke an API token"), method("DELETE")), revokeToken),
		does(get("/users", access.Admin, "List local users"), listUsers),
		does(with(post("/users/{name}", access.Admin, "users.put",
			"Create or change a local user, and end the user's sessions"), method("PUT")), putUser),
		does(with(post("/users/{name}", access.Admin, "users.remove", "Remove a local user, and end the user's sessions"),
			method("DELETE")), removeUser),
		does(get("/sessions", access.Admin, "List the people who are logged in"), listPeople),
		does(post("/sessions/end", access.Admin, "sessions.end", "Log a person out everywhere, by identity"), endSessions),
		does(with(get("/audit", access.Admin, "List what operators did, newest first"), large), listAudit),

		does(Route{Method: "GET", Path: "/healthz", Need: access.Open, Summary: "Check whether the process is up"}, healthz),
		does(Route{Method: "GET", Path: "/readyz", Need: access.Open, Summary: "Check whether the database can be reached"},
			readyz),
		does(Route{Method: "GET", Path: "/metrics", Need: access.Read, Whole: true, Stream: true,
			Summary: "Get metrics in the Prometheus format"}, metrics),
		does(Route{Method: "GET", Path: "/openapi.json", Need: access.Open, Summary: "Get this description"}, openapi),
	}
}
