package couchbase

import (
	"context"
	"fmt"
	"strings"

	"github.com/couchbase/gocb/v2"

	"github.com/tuskqueue/tusk/store"
)

// The statements. Their texts are fixed, and have named parameters. Each of them except the last is answered from an
// index alone.
const (
	fromTask = " FROM `bucket`.`tusk`.`task` AS t WHERE "

	queryDue    = "SELECT META(t).id, t.due" + fromTask + "t.due IS VALUED ORDER BY t.due LIMIT $n"
	queryDoomed = "SELECT RAW META(t).id" + fromTask + "t.doom > 0 ORDER BY t.doom LIMIT $n"
	queryPassed = "SELECT META(t).id, t.avl" + fromTask +
		"t.q = $q AND t.p = $p AND t.avl IS VALUED AND t.avl <= $by ORDER BY t.avl, META(t).id LIMIT $n"
	queryLanes = "SELECT t.q, t.p" + fromTask + "t.avl IS VALUED AND t.q IS VALUED GROUP BY t.q, t.p"
	queryTodo  = "SELECT RAW META(t).id" + fromTask + "t.todo < $before ORDER BY t.todo LIMIT $n"
	queryHeld  = "SELECT RAW META(t).id" + fromTask + "ANY r IN t.run SATISFIES r.w = $w END LIMIT $n"
	queryNeedy = "SELECT RAW META(t).id" + fromTask + "t.st = \"p\" AND ANY n IN t.needs SATISFIES n.t = $id END"
	queryOld   = "SELECT META(t).id, t.fin" + fromTask + "t.fin IS VALUED AND t.st = $st" +
		" AND t.fin > $after AND t.fin <= $until AND t.q NOT IN $own ORDER BY t.fin LIMIT $n"
	queryOldOf = "SELECT META(t).id, t.fin" + fromTask + "t.fin IS VALUED AND t.st = $st" +
		" AND t.fin > $after AND t.fin <= $until AND t.q = $q ORDER BY t.fin LIMIT $n"
	queryCount = "SELECT t.q, t.st, SUM(t.n) AS n, SUM(t.lent) AS lent, MIN(t.avl) AS oldest" + fromTask +
		"t.fin IS NOT VALUED AND t.q IS VALUED GROUP BY t.q, t.st"
	queryInLine = "SELECT t.q, t.tn, t.pt, COUNT(1) AS n, MIN(t.turn) AS since" + fromTask +
		"t.turn IS VALUED AND t.q IS VALUED GROUP BY t.q, t.tn, t.pt"
	queryGranted = "SELECT t.q, t.tn, t.pt, COUNT(1) AS n" + fromTask +
		"t.held = TRUE AND t.q IS VALUED GROUP BY t.q, t.tn, t.pt"
	queryLine = "SELECT META(t).id, t.q, t.tn, t.pt" + fromTask +
		"t.turn IS VALUED AND t.q IS VALUED ORDER BY t.q, t.tn, t.pt, t.p, t.turn LIMIT $n"
	queryHeads = "SELECT RAW META(t).id" + fromTask +
		"t.turn IS VALUED AND t.q = $q AND t.tn = $tn AND t.pt = $pt ORDER BY t.p, t.turn LIMIT $n"
	queryFailed = "SELECT t.fp, t.st, t.q, t.k, COUNT(1) AS n" + fromTask +
		"t.fp IN $fp AND t.st IN [\"y\", \"d\"] GROUP BY t.fp, t.st, t.q, t.k"

	queryTodoKeys = "SELECT RAW META(k).id FROM `bucket`.`tusk`.`key` AS k" +
		" WHERE k.todo < $before ORDER BY k.todo LIMIT $n"
	queryTodoMeta = "SELECT RAW META(m).id FROM `bucket`.`tusk`.`meta` AS m" +
		" WHERE m.todo < $before ORDER BY m.todo LIMIT $n"
	queryKeyspaces = "SELECT RAW k.name FROM system:keyspaces AS k WHERE k.`bucket` = $bucket AND k.`scope` = $scope"
	queryVersion   = "SELECT RAW DS_VERSION()"
	queryIndexes   = "SELECT RAW i.name FROM system:indexes AS i" +
		" WHERE i.bucket_id = $bucket AND i.scope_id = $scope AND i.state = $state"
	queryIDs = "SELECT RAW META(m).id FROM `bucket`.`tusk`.`meta` AS m" +
		" WHERE META(m).id > $after AND META(m).id < $until ORDER BY META(m).id LIMIT $n"
	queryNames = "SELECT META(m).id, m FROM `bucket`.`tusk`.`meta` AS m" +
		" WHERE META(m).id > $after AND META(m).id < $until ORDER BY META(m).id LIMIT $n"
)

// queryList returns the statement for a page of tasks.
func queryList(f *store.Filter) (string, args) {
	text, a := "SELECT RAW META(t).id"+fromTask+"META(t).id < $before", args{}
	states := []string{mixed}
	for _, state := range f.States {
		states = append(states, letters[state])
	}
	for _, c := range []struct {
		given           bool
		condition, name string
		value           any
	}{
		{!f.Workflow.IsZero(), "t.wf = $wf", "wf", f.Workflow.String()},
		{f.Key != "", "t.`key` = $key", "key", f.Key},
		{len(f.Queues) > 0, "t.q IN $q", "q", f.Queues},
		{len(f.States) > 0, "t.st IN $st", "st", states},
		{len(f.Kinds) > 0, "t.k IN $k", "k", f.Kinds},
		{len(f.Tenants) > 0, "t.tn IN $tn", "tn", f.Tenants},
		{f.Fingerprint != "", "t.fp = $fp", "fp", f.Fingerprint},
	} {
		if c.given {
			text += " AND " + c.condition
			a[c.name] = c.value
		}
	}
	if f.Workflow.IsZero() && f.Key == "" {
		text += " AND t.q IS VALUED" // the index without graves
	}
	return text + " ORDER BY META(t).id DESC LIMIT $n", a
}

// args are the named parameters of a statement.
type args map[string]any

// placed replaces the bucket and scope of a statement by the configured ones.
func (s *Store) placed(statement string) string {
	return strings.ReplaceAll(statement, "`bucket`.`tusk`", "`"+s.bucket+"`.`"+s.scope+"`")
}

// query runs a statement and returns its rows. The index first catches up with all writes. Callers check the rows
// against the documents, which may have changed since.
func query[R any](ctx context.Context, s *Store, statement string, a args) (rows []R, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.queryTimeout) // for all tries
	defer cancel()
	err = s.again(ctx, func() (err error) {
		rows, err = ask[R](s, statement, gocb.QueryOptions{Context: ctx, NamedParameters: a, Readonly: true,
			Timeout: s.queryTimeout, ScanConsistency: gocb.QueryScanConsistencyRequestPlus})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("query: %w", err)
	}
	return rows, nil
}

// ask runs a statement once.
func ask[R any](s *Store, statement string, options gocb.QueryOptions) (rows []R, err error) {
	found, err := s.cluster.Query(s.placed(statement), &options)
	if err != nil {
		return nil, err
	}
	for found.Next() {
		var r R
		if err := found.Row(&r); err != nil && !partial(err) { // a field of a damaged document keeps its zero value
			return nil, err
		}
		rows = append(rows, r)
	}
	return rows, found.Err()
}
