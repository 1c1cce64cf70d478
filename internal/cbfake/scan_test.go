package cbfake

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

// engine has the statements of the Couchbase engine.
const engine = "../../store/couchbase/testdata/statements.n1ql"

// created starts a cluster with the collections and indexes of the engine, and returns its queries.
func created(t *testing.T, journal string) (c *Cluster, queries []string) {
	t.Helper()
	text, err := os.ReadFile(engine)
	if err != nil {
		t.Fatal(err)
	}
	if c, err = StartWith(Options{Nodes: 1, Journal: journal}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	for _, statement := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		if strings.HasPrefix(statement, "CREATE ") {
			if err := c.create(statement); err != nil {
				t.Fatal(err)
			}
		} else if strings.Contains(statement, "FROM `") {
			queries = append(queries, statement)
		}
	}
	return c, queries
}

// someValue returns a random value for a field or an argument.
func someValue(r *rand.Rand) any {
	if r.IntN(8) == 0 {
		return []any{nil, true, false, "", json.Number("2.0"), map[string]any{"w": "p"}}[r.IntN(6)]
	}
	return []any{json.Number(fmt.Sprint(r.IntN(4))), []string{"p", "y", "d"}[r.IntN(3)]}[r.IntN(2)]
}

func someDocument(r *rand.Rand) version {
	if r.IntN(6) == 0 {
		return version{gone: true}
	}
	fields := map[string]any{}
	for _, name := range strings.Fields("due q p avl st n lent fin todo doom key wf k tn fp enq pt turn held") {
		if r.IntN(4) > 0 {
			fields[name] = someValue(r)
		}
	}
	for name, part := range map[string]string{"run": "w", "needs": "t"} {
		if r.IntN(2) == 0 {
			fields[name] = []any{map[string]any{part: someValue(r)}, map[string]any{part: someValue(r)}}
		}
	}
	return version{value: encode(fields)}
}

// fillRandomly writes random versions of documents, over two hours.
func fillRandomly(c *Cluster, r *rand.Rand, now time.Time) {
	for _, id := range c.collections {
		for i := range 60 {
			key := fmt.Sprintf("%c%02d", "dpy"[i%3], i)
			d := &doc{versions: []version{{gone: true}}}
			c.docs[id][key] = d
			for range 1 + r.IntN(4) {
				v := someDocument(r)
				c.seqno[vbucketOf(key)]++
				v.seqno, v.at = c.seqno[vbucketOf(key)], now.Add(30*time.Second-time.Duration(r.IntN(120))*time.Minute)
				v.know(c.of[id])
				d.versions = append(d.versions, v)
				c.index(id, key, d)
			}
			if r.IntN(3) == 0 {
				d.versions = d.versions[len(d.versions)-1:]
				c.index(id, key, d)
			}
		}
	}
}

var parameter = regexp.MustCompile(`(IN )?\$(\w+)`)

func someArgs(r *rand.Rand, text string) map[string]any {
	a := map[string]any{}
	for _, m := range parameter.FindAllStringSubmatch(text, -1) {
		switch a[m[2]] = someValue(r); {
		case m[1] != "":
			a[m[2]] = []any{someValue(r), someValue(r)}
		case m[2] == "n":
			a[m[2]] = json.Number(fmt.Sprint(r.IntN(6)))
		case strings.Contains(text, "META(") && r.IntN(2) == 0:
			a[m[2]] = fmt.Sprintf("%c%02d", "dpy"[r.IntN(3)], r.IntN(60))
		}
	}
	return a
}

// A scan of a part of an index has the same result as one of all its documents.
func TestAScanOfAPartOfAnIndex(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	found, skipped := 0, 0
	for range 5 {
		c, queries := created(t, "")
		now := time.Now()
		fillRandomly(c, r, now)
		for _, text := range append(queries,
			"SELECT META(t).id, t.q FROM `bucket`.`tusk`.`task` AS t WHERE t.q >= $a AND t.q < $b AND t.q > $c"+
				" AND t.avl IS VALUED ORDER BY t.q DESC LIMIT $n",
			"SELECT RAW META(t).id FROM `bucket`.`tusk`.`task` AS t WHERE t.due > $a AND t.due <= $b",
			"SELECT RAW META(t).id FROM `bucket`.`tusk`.`task` AS t WHERE t.q = $a AND t.avl IS VALUED"+
				" ORDER BY t.p DESC, t.avl DESC LIMIT $n",
			"SELECT RAW META(t).id FROM `bucket`.`tusk`.`task` AS t WHERE t.q = $a AND t.q = $b AND t.avl IS VALUED"+
				" ORDER BY t.p, t.avl DESC LIMIT $n") {
			s, err := c.parse(text)
			if err != nil {
				t.Fatal(err)
			}
			for range 40 {
				c.faults.Lag = time.Duration(r.IntN(3)) * time.Hour
				q := &request{args: someArgs(r, text), Consistency: []string{"", "request_plus"}[r.IntN(2)]}
				docs, err := c.rows(s, q)
				if err != nil {
					t.Fatal(err)
				}
				read := len(docs)
				got, err := s.run(docs, q.args)
				if err != nil {
					t.Fatal(err)
				}
				id := c.collections[strings.SplitN(bare(s.from), ".", 2)[1]]
				x, covered := c.choose(id, s)
				visible := c.sight(x, covered, q.Consistency == "request_plus")
				var all []row
				for key := range x.documents {
					if r, v := visible(key, c.docs[id][key]); v != nil {
						all = append(all, r)
					}
				}
				skipped += len(all) - read
				want, err := s.run(all, q.args)
				if err != nil {
					t.Fatal(err)
				}
				if found += len(got); string(encode(got)) != string(encode(want)) {
					t.Fatalf("%s with %s and lag %s:\n got %s\nwant %s", text, encode(q.args), c.faults.Lag, encode(got),
						encode(want))
				}
			}
		}
	}
	if t.Logf("found %d rows, and did not read %d", found, skipped); found == 0 || skipped == 0 {
		t.Error("found nothing, or skipped nothing")
	}
}

// The next cluster has the documents and indexes of the journal, without a request that was not answered.
func TestAJournalWithAnIncompleteLastLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	c, _ := created(t, path)
	for id, n := range []string{"due", "fin"} {
		for i := range 10 {
			v := version{value: fmt.Appendf(nil, `{%q:%d,"q":"x","st":"y"}`, n, i), seqno: uint64(i + 1)}
			if err := c.journal.note("tusk.task", fmt.Sprint(id, "-", i), &v); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := c.journal.note("tusk.task", "0-3", &version{gone: true}); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.journal.note("tusk.task", "torn", &version{value: []byte(`{"due":7}`)}); err != nil {
		t.Fatal(err)
	}
	all, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for size := len(whole); size < len(all); size++ {
		if err := os.WriteFile(path, all[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second time with the file that the first has made
			next, err := StartWith(Options{Nodes: 1, Journal: path})
			if err != nil {
				t.Fatal(err)
			}
			got := []int{next.Indexed("tusk", "tusk_due"), next.Indexed("tusk", "tusk_fin"), next.Indexed("tusk", "tusk_id")}
			next.Close()
			if want := []int{9, 10, 19}; !reflect.DeepEqual(got, want) {
				t.Fatalf("with %d of %d bytes the indexes have %v documents, want %v", size, len(all), got, want)
			}
		}
	}
}
