package cbfake

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// index is an index of a collection. It has the documents in which its first field has a value and
// its condition holds, with the fields that it needs. A query that can use no index fails, as it
// does on a server without a primary index. docs.couchbase.com: "CREATE INDEX", "Index Selection".
type index struct {
	fields    []string // the first is the key; empty means the document's id
	where     string   // a condition, as in a statement; empty if none
	knows     []string // all fields that it uses
	holds     condition
	documents map[string][]*entry
	entries   []*entry // in order
}

var definition = regexp.MustCompile(`^CREATE INDEX (\S+) IF NOT EXISTS ON (\S+?)\((.+)\)(?: WHERE (.+))?$`)

// define creates an index over the existing documents.
func (c *Cluster) define(text string) error {
	m := definition.FindStringSubmatch(text)
	if m == nil {
		return fmt.Errorf("the fake cannot read %s", text)
	}
	_, on, _ := strings.Cut(bare(m[2]), ".")
	id, known := c.collections[on]
	if !known || c.late(on) {
		return noKeyspace(m[2])
	}
	scope, _, _ := strings.Cut(on, ".")
	name := scope + "." + bare(m[1])
	if c.indexes[name] != nil {
		return nil
	}
	x := &index{where: bare(m[4]), documents: map[string][]*entry{}}
	for _, f := range list(m[3]) {
		f = strings.TrimSuffix(bare(f), " DESC")
		if words := strings.Fields(f); words[0] == "DISTINCT" { // DISTINCT ARRAY r.w FOR r IN run END
			f = words[len(words)-2]
		}
		x.fields = append(x.fields, strings.TrimPrefix(f, "META().id"))
	}
	if x.where != "" {
		if x.holds = conditionOf("d." + x.where).test; x.holds == nil {
			return fmt.Errorf("the fake cannot read the condition %s", x.where)
		}
	}
	x.knows = slices.Concat(x.fields, strings.Fields(x.where))
	c.indexes[name] = x
	c.of[id] = append(c.of[id], x)
	for _, d := range c.docs[id] {
		d.know(c.of[id])
	}
	x.fill(c.docs[id])
	return nil
}

// Indexed returns how many documents an index has.
func (c *Cluster) Indexed(scope, name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.indexes[scope+"."+name].documents)
}

// bare returns a name or a condition without backticks.
func bare(text string) string { return strings.ReplaceAll(text, "`", "") }

// has reports whether a version of a document belongs in the index.
func (x *index) has(key string, v *version) bool {
	if v.gone {
		return false
	}
	if first := x.fields[0]; first != "" && v.known[first] == nil {
		return false
	}
	return x.holds == nil || x.holds(row{id: key, tree: v.known}, nil)
}

// serves reports whether a statement can use the index, and whether the index covers the statement.
func (x *index) serves(s *statement) (usable, covers bool) {
	usable = x.where == "" || slices.ContainsFunc(s.conditions, func(c where) bool { return c.text == x.where })
	found := slices.ContainsFunc(s.conditions, func(c where) bool { return c.field == x.fields[0] })
	covers = true
	for path := range s.reads {
		covers = covers && (path == "" || slices.Contains(x.fields, path) || strings.HasPrefix(x.where, path+" "))
	}
	return usable && found, covers && !s.whole
}

// choose returns the index that a statement uses: if possible one that covers the statement, and
// among several the one with the fewest documents.
func (c *Cluster) choose(id uint32, s *statement) (best *index, covered bool) {
	for _, x := range c.of[id] {
		usable, covers := x.serves(s)
		if !usable || best != nil && covered && !covers {
			continue
		}
		if best == nil || covers && !covered || len(x.documents) < len(best.documents) {
			best, covered = x, covers
		}
	}
	return best, covered
}
