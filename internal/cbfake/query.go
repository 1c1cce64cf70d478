package cbfake

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// request is a request to the query service. docs.couchbase.com: "Query Service REST API".
type request struct {
	Statement   string `json:"statement"`
	Prepared    string `json:"prepared"`
	ContextID   string `json:"client_context_id"`
	Consistency string `json:"scan_consistency"`
	Timeout     string `json:"timeout"`
	args        map[string]any
}

func (n *node) serveHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/admin/ping":
		_, _ = io.WriteString(w, "{}")
		return
	case control:
		n.cluster.takeOrder(w, r)
		return
	case "/query/service":
	default:
		http.NotFound(w, r)
		return
	}
	body, _ := io.ReadAll(r.Body)
	var q request
	fields, _ := decode(body)
	if err := json.Unmarshal(body, &q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	q.args = map[string]any{}
	for name, v := range fields.(map[string]any) {
		if after, is := strings.CutPrefix(name, "$"); is {
			q.args[after] = v
		}
	}
	answer := object{"requestID": "r", "clientContextID": q.ContextID, "signature": "json", "results": []any{},
		"status": "success", "metrics": object{}}
	rows, name, err := n.cluster.query(&q)
	if errors.Is(err, errBehind) {
		err = await(r.Context(), &q)
	}
	status := http.StatusOK
	if err != nil {
		f := failure{code: 3000, status: http.StatusBadRequest, text: err.Error()}
		_ = errors.As(err, &f)
		status = f.status
		answer["status"], answer["errors"] = "fatal", []any{object{"code": f.code, "msg": f.text}}
	} else if rows != nil {
		answer["results"] = rows
	}
	if name != "" {
		answer["prepared"] = name
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer)
}

// failure is an error with the code and the HTTP status that the query service uses for it.
// github.com/couchbase/query: errors/codes.go; server/http/service_response.go,
// mapErrorToHttpResponse.
type failure struct {
	code, status int
	text         string
}

func (f failure) Error() string { return f.text }

// errUnprepared tells the client to prepare a statement again, as after a restart of the node. The
// client looks at the code, but only if the status is not 200. A server has not sent anything at
// that point, and answers 404.
var errUnprepared = failure{4040, http.StatusNotFound, "no such prepared statement"}

func noScope(name string) error {
	return failure{12021, http.StatusInternalServerError, "Scope not found in CB datastore " + name}
}

func noKeyspace(name string) error {
	return failure{12003, http.StatusFailedDependency, "Keyspace not found in CB datastore: " + name}
}

// noIndex is how the planner refuses a statement that no index can answer.
// github.com/couchbase/query: errors/plan.go; planner/build_scan.go.
func noIndex(keyspace string) error {
	return failure{4000, http.StatusNotFound, "No index available on keyspace " + keyspace + " that matches your query."}
}

// errBehind says that an index does not reach the state that a scan asks for.
var errBehind = errors.New("the index is behind")

// await waits for an index that does not catch up, as long as the request allows, and returns the resulting error.
func await(ctx context.Context, q *request) error {
	wait, err := time.ParseDuration(q.Timeout)
	if err != nil {
		wait = time.Hour
	}
	select {
	case <-ctx.Done():
	case <-time.After(wait):
	}
	return failure{1080, http.StatusOK, "Timeout " + q.Timeout + " exceeded"}
}

// query runs a statement, which may be prepared. It evaluates the rows while document requests are
// served, as the query service does. That is safe because versions do not change.
func (c *Cluster) query(q *request) (rows []any, name string, err error) {
	c.mu.Lock()
	c.queries.Add(1)
	text, name, err := c.textOf(q)
	var s *statement
	var docs []row
	switch {
	case err != nil:
	case text == "SELECT RAW DS_VERSION()":
		rows = []any{Version}
	case strings.HasPrefix(text, "CREATE "):
		err = c.create(text)
	default:
		if s, err = c.parse(text); err == nil {
			docs, err = c.rows(s, q)
		}
	}
	c.mu.Unlock()
	if s != nil && err == nil {
		rows, err = s.run(docs, q.args)
	}
	return rows, name, err
}

// parse parses a statement that may have been parsed before.
func (c *Cluster) parse(text string) (*statement, error) {
	if s := c.parsed[text]; s != nil {
		return s, nil
	}
	s, err := parse(text)
	if err == nil {
		c.parsed[text] = s
	}
	return s, err
}

// textOf returns the text of a statement, and its name if it is prepared.
func (c *Cluster) textOf(q *request) (text, name string, err error) {
	if after, prepare := strings.CutPrefix(q.Statement, "PREPARE "); prepare {
		// The name depends on the text, so that a name from before a restart never means another
		// statement.
		name = fmt.Sprintf("p%x", sha256.Sum256([]byte(after)))
		c.prepared[name] = after
		return after, name, nil
	}
	if q.Prepared == "" {
		return q.Statement, "", nil
	}
	text, known := c.prepared[q.Prepared]
	if !known {
		err = errUnprepared
	}
	return text, "", err
}

// create creates scopes, collections and indexes.
func (c *Cluster) create(text string) error {
	words := strings.Fields(strings.ReplaceAll(text, " IF NOT EXISTS", ""))
	path := strings.Split(strings.ReplaceAll(words[2], "`", ""), ".")
	switch {
	case words[1] == "SCOPE" && len(path) == 2:
		if !c.scopes[path[1]] {
			c.scopes[path[1]], c.made[path[1]] = true, time.Now()
		}
		return c.journal.define(text)
	case words[1] == "COLLECTION" && len(path) == 3:
		if !c.scopes[path[1]] || c.late(path[1]) {
			return noScope(path[1])
		}
		name := path[1] + "." + path[2]
		if _, known := c.collections[name]; !known {
			id := uint32(8 + len(c.collections))
			c.collections[name], c.docs[id], c.made[name] = id, map[string]*doc{}, time.Now()
			return c.journal.define(text)
		}
	case words[1] == "INDEX":
		if err := c.define(text); err != nil {
			return err
		}
		return c.journal.define(text)
	default:
		return fmt.Errorf("the fake cannot run %s", text)
	}
	return nil
}

// late reports whether the query service does not know a scope or a collection yet. The statement
// that makes one is answered before that. github.com/couchbase/query:
// datastore/couchbase/couchbase.go, setNeedsManifest.
func (c *Cluster) late(name string) bool { return time.Since(c.made[name]) < c.faults.Late }

// rows returns the rows of a keyspace. Of the system keyspaces, the fake has those of collections
// and indexes.
func (c *Cluster) rows(s *statement, q *request) (rows []row, err error) {
	switch s.from {
	case "system:keyspaces":
	case "system:indexes":
		for name := range c.indexes {
			scope, index, _ := strings.Cut(name, ".")
			rows = append(rows, row{name, map[string]any{"name": index, "bucket_id": Bucket, "scope_id": scope,
				"state": "online"}})
		}
		return rows, nil
	default:
		return c.indexed(s, q)
	}
	for name := range c.collections {
		scope, collection, _ := strings.Cut(name, ".")
		if c.late(name) {
			continue
		}
		rows = append(rows, row{name, map[string]any{"name": collection, "bucket": Bucket, "scope": scope}})
	}
	return rows, nil
}

// indexed returns the documents of a keyspace as the index knows them. That is an older state,
// unless the query asks for all writes (request_plus). docs.couchbase.com: "Scan Consistency".
func (c *Cluster) indexed(s *statement, q *request) (rows []row, err error) {
	path := strings.SplitN(bare(s.from), ".", 2)
	id, known := c.collections[path[len(path)-1]]
	if !known || path[0] != Bucket || c.late(path[len(path)-1]) {
		return nil, noKeyspace(s.from)
	}
	x, covered := c.choose(id, s)
	if x == nil {
		return nil, noIndex(s.from)
	}
	all := q.Consistency == "request_plus"
	if c.faults.Stuck && all {
		return nil, errBehind
	}
	most, err := s.most(q.args)
	if err != nil {
		return nil, err
	}
	return x.scan(s, q.args, most, c.sight(x, covered, all)), nil
}

// sight returns a function that returns the version of a document that a query sees in an index, with its row. The
// version is nil if there is none. If all is set, the query asks for all writes.
func (c *Cluster) sight(x *index, covered, all bool) func(key string, d *doc) (row, *version) {
	now := c.time()
	known := time.Now().Add(-c.faults.Lag) // the index has what was written until then
	return func(key string, d *doc) (row, *version) {
		for i := len(d.versions) - 1; i >= 0; i-- {
			v := &d.versions[i]
			if c.faults.Lag > 0 && i > 0 && !all && v.at.After(known) {
				continue
			}
			// The index is known to have a document with a single version.
			if !v.there(now) || len(d.versions) > 1 && !x.has(key, v) {
				break
			}
			if covered {
				return row{key, v.known}, v
			}
			if tree, ok := v.root(); ok {
				return row{key, tree}, v
			}
			break
		}
		return row{}, nil
	}
}
