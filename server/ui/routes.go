package ui

import "github.com/tuskqueue/tusk/server/access"

// Route is a page or a form handler.
type Route struct {
	Method, Path string
	Need         access.Permission
	Audit        string // the action in the audit log; empty if not logged
	Stream       bool   // the response lasts for as long as the page is watched
	Aggregate    bool   // shows sums over all tenants
	Whole        bool   // shows sums over all queues as well
	Large        bool   // reads megabytes: only few run at a time

	show func(v *visit) (answer, error)
	only needs
}

// needs says which of the options a route needs.
type needs int

const (
	needsNothing needs = iota
	needsGate
	needsBook
	needsProvider
	needsPush
	needsAlerts
	needsArchive
)

func (r Route) has(p *pages) bool {
	switch r.only {
	case needsGate:
		return p.Gate != nil && !p.Gate.Dev
	case needsProvider:
		return p.Gate != nil && p.Gate.Provider != nil
	case needsBook:
		return p.Book != nil
	case needsArchive:
		return p.Archive != nil
	case needsAlerts:
		return p.Alerts != nil
	case needsPush:
		return p.Endpoints != nil && p.Push != nil
	default:
		return true
	}
}

// Routes lists all pages and form handlers.
func Routes() []Route {
	get := func(path string, show func(*visit) (answer, error)) Route {
		return Route{Method: "GET", Path: path, Need: access.Read, show: show}
	}
	large := func(path string, show func(*visit) (answer, error)) Route {
		return Route{Method: "GET", Path: path, Need: access.Read, Large: true, show: show}
	}
	sums := func(path string, show func(*visit) (answer, error)) Route {
		return Route{Method: "GET", Path: path, Need: access.Read, Aggregate: true, show: show}
	}
	post := func(path, audit string, show func(*visit) (answer, error)) Route {
		return Route{Method: "POST", Path: path, Need: access.Operate, Audit: audit, show: show}
	}
	admin := func(method, path, audit string, show func(*visit) (answer, error)) Route {
		return Route{Method: method, Path: path, Need: access.Admin, Audit: audit, show: show, only: needsBook}
	}
	pushing := func(method, path, audit string, show func(*visit) (answer, error)) Route {
		return Route{Method: method, Path: path, Need: access.Admin, Audit: audit, show: show, only: needsPush}
	}
	open := func(method, path string, only needs, show func(*visit) (answer, error)) Route {
		return Route{Method: method, Path: path, Need: access.Open, show: show, only: only}
	}
	return []Route{
		sums("/{$}", overview),
		sums("/series.json", series),
		{Method: "GET", Path: "/live", Need: access.Read, Aggregate: true, Stream: true, show: live},
		{Method: "GET", Path: "/live/lists", Need: access.Read, Stream: true, show: watchLists},
		sums("/queues", queues),
		sums("/queues/{queue}", queuePage),
		post("/queues/{queue}/pause", "queues.pause", pauseQueue),
		post("/queues/{queue}/resume", "queues.resume", resumeQueue),
		post("/queues/{queue}/remove", "queues.remove", removeQueue),
		post("/queues", "queues.age", ageQueue),
		{Method: "POST", Path: "/queues/retention", Need: access.Admin, Audit: "queues.keep", show: keepQueue},

		large("/tasks", tasks),
		{Method: "GET", Path: "/tasks/new", Need: access.Enqueue, show: newTask},
		{Method: "POST", Path: "/tasks/new", Need: access.Enqueue, Audit: "tasks.enqueue", show: enqueue},
		post("/tasks/selected", "tasks.edit", editSelected),
		get("/tasks/{id}", task),
		{Method: "GET", Path: "/tasks/{id}/live", Need: access.Read, Stream: true, show: watchTask},
		post("/tasks/{id}/{action}", "tasks.edit", editTask),
		post("/bulk", "bulk.start", startBulk),
		get("/bulk", operations),
		get("/bulk/{id}", operation),
		{Method: "GET", Path: "/bulk/{id}/live", Need: access.Read, Stream: true, show: watchOperation},
		post("/bulk/{id}/cancel", "bulk.cancel", cancelBulk),

		{Method: "GET", Path: "/archive", Need: access.Read, Large: true, show: searchArchive, only: needsArchive},
		{Method: "POST", Path: "/archive/tasks/{id}/rerun", Need: access.Operate, Audit: "archive.rerun", show: rerunArchived,
			only: needsArchive},
		{Method: "POST", Path: "/archive/tasks/{id}/restore", Need: access.Admin, Audit: "archive.restore",
			show: restoreArchived, only: needsArchive},
		{Method: "POST", Path: "/archive/reruns", Need: access.Operate, Audit: "archive.rerun", show: rerunFound,
			only: needsArchive},
		{Method: "POST", Path: "/archive/reruns/{id}/cancel", Need: access.Operate, Audit: "archive.rerun.cancel",
			show: cancelRerun, only: needsArchive},
		{Method: "GET", Path: "/archive/keeping", Need: access.Admin, show: keeping, only: needsArchive},
		{Method: "POST", Path: "/archive/retention", Need: access.Admin, Audit: "archive.keep", show: keepArchived,
			only: needsArchive},
		{Method: "POST", Path: "/archive/holds", Need: access.Admin, Audit: "archive.hold", show: putHold,
			only: needsArchive},
		{Method: "POST", Path: "/archive/holds/{name}/remove", Need: access.Admin, Audit: "archive.unhold", show: removeHold,
			only: needsArchive},
		{Method: "POST", Path: "/archive/erasures", Need: access.Admin, Audit: "archive.erase", show: eraseTenant,
			only: needsArchive},
		{Method: "POST", Path: "/archive/prune", Need: access.Admin, Audit: "archive.prune", show: pruneArchive,
			only: needsArchive},

		{Method: "GET", Path: "/errors", Need: access.Read, Aggregate: true, Large: true, show: errorGroups},
		post("/errors/{fingerprint}/retry", "errors.retry", retryErrors),

		sums("/pipelines", pipelines),
		{Method: "POST", Path: "/pipelines/{name}/remove", Need: access.Admin, Audit: "pipelines.remove",
			show: removePipeline},
		large("/workflows", workflows),
		large("/workflows/{id}", workflow),
		post("/workflows/{id}/{action}", "workflows.edit", editWorkflow),

		sums("/limits", limits),
		post("/limits", "limits.put", putLimits),
		post("/limits/{queue}/remove", "limits.remove", removeLimits),
		get("/tenants", tenants),
		get("/tenants/{tenant}", tenant),
		post("/tenants/{tenant}", "limits.put", putTenantLimits),

		large("/schedules", schedules),
		{Method: "GET", Path: "/new-schedule", Need: access.Operate, show: newSchedule},
		post("/new-schedule", "schedules.put", putSchedule),
		get("/schedules/{name}", schedule),
		post("/schedules/{name}/{action}", "schedules.edit", editSchedule),

		sums("/kinds", kinds),
		sums("/kinds/{kind}", kindPage),
		sums("/workers", workers),
		sums("/workers/{worker}", workerPage),
		post("/workers/{worker}/quiet", "workers.quiet", quietWorker),
		post("/workers/{worker}/wake", "workers.wake", wakeWorker),
		get("/find", find),
		{Method: "GET", Path: "/doctor", Need: access.Operate, Whole: true, show: diagnosis},
		get("/help", help),
		{Method: "GET", Path: "/settings", Need: access.Admin, show: settings},
		admin("GET", "/audit", "", audit),
		pushing("GET", "/endpoints", "", endpoints),
		pushing("POST", "/endpoints", "endpoints.put", putEndpoint),
		pushing("POST", "/endpoints/{queue}/rotate", "endpoints.rotate", rotateEndpoint),
		pushing("POST", "/endpoints/{queue}/remove", "endpoints.remove", removeEndpoint),
		{Method: "GET", Path: "/alerts", Need: access.Read, Aggregate: true, show: alerts, only: needsAlerts},
		{Method: "POST", Path: "/alerts", Need: access.Admin, Audit: "alerts.put", show: putAlert, only: needsAlerts},
		{Method: "POST", Path: "/alerts/{name}/remove", Need: access.Admin, Audit: "alerts.remove", show: removeAlert,
			only: needsAlerts},
		{Method: "POST", Path: "/alerts/{name}/{action}", Need: access.Operate, Audit: "alerts.edit", Aggregate: true,
			show: editAlert, only: needsAlerts},
		admin("GET", "/access", "", people),
		admin("POST", "/access/tokens", "tokens.create", createToken),
		admin("POST", "/access/tokens/{id}/revoke", "tokens.revoke", revokeToken),
		admin("POST", "/access/users", "users.put", putUser),
		admin("POST", "/access/users/{name}/remove", "users.remove", removeUser),

		admin("POST", "/access/sessions/end", "sessions.end", endSessions),

		{Method: "GET", Path: "/account", Need: access.Read, show: account, only: needsGate},
		{Method: "POST", Path: "/account/password", Need: access.Read, Audit: "users.password", show: changePassword,
			only: needsGate},
		open("GET", "/login", needsGate, loginPage),
		open("POST", "/login", needsGate, login),
		open("POST", "/logout", needsGate, logout),
		open("GET", "/login/oidc", needsProvider, loginElsewhere),
		open("GET", "/login/oidc/callback", needsProvider, loggedInElsewhere),
		open("POST", "/theme", needsNothing, setTheme),
	}
}
