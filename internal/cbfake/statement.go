package cbfake

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// statement is a parsed statement. The fake supports a part of SQL++: one keyspace, conditions
// joined by AND, groups with sums, an order and a limit. Anything else is an error, so that a
// statement that the fake does not understand fails its test.
//
//	SELECT [RAW] terms FROM keyspace AS t WHERE conditions [GROUP BY exprs] [ORDER BY exprs] [LIMIT n]
type statement struct {
	raw        bool
	whole      bool // it returns whole documents
	terms      []term
	from       string
	conditions []where
	reads      map[string]bool // fields that it uses; "" is the document's id
	group      []expr
	order      []ordering
	limit      string
}

type row struct {
	id   string
	tree any
}

// expr is META(t).id, or a path in the document. If parts is nil, it is the whole document.
type expr struct {
	id    bool
	parts []string
}

type term struct {
	expr
	sum, name string // the aggregate (COUNT, SUM, MIN) and the name of the column
}

type ordering struct {
	expr
	desc bool
}

// where is a condition, with its text without the name of the keyspace. If it bounds a field, op and operand tell how:
// op is IS VALUED or a comparison with an operand.
type where struct {
	text        string
	field       string
	op, operand string
	test        condition
}

// condition is a test of a row.
type condition func(r row, args map[string]any) bool

var (
	shape = regexp.MustCompile(`^SELECT (RAW )?(.+?) FROM (\S+) AS (\w+) WHERE (.+?)` +
		`(?: GROUP BY (.+?))?(?: ORDER BY (.+?))?(?: LIMIT (\S+))?$`)
	valued = regexp.MustCompile(`^(\S+) IS (NOT )?VALUED$`)
	among  = regexp.MustCompile(`^(\S+) (NOT )?IN (\$\w+|\[.*\])$`)
	beside = regexp.MustCompile(`^(\S+) (=|<|<=|>|>=) (\S+)$`)
	some   = regexp.MustCompile(`^ANY (\w+) IN (\S+) SATISFIES (\S+) = (\$\w+) END$`)
	sums   = regexp.MustCompile(`^(COUNT|SUM|MIN)\((.+)\) AS (\w+)$`)
)

func parse(text string) (*statement, error) {
	m := shape.FindStringSubmatch(text)
	if m == nil {
		return nil, fmt.Errorf("the fake cannot read %s", text)
	}
	s := &statement{raw: m[1] != "", from: m[3], limit: m[8], reads: map[string]bool{}}
	for _, t := range list(m[2]) {
		one := termOf(t)
		s.terms, s.whole = append(s.terms, one), s.whole || len(one.parts) == 0 && !one.id && one.sum == ""
		if one.id || len(one.parts) > 0 {
			s.reads[one.field()] = true
		}
	}
	for _, c := range strings.Split(m[5], " AND ") {
		w := conditionOf(c)
		if w.test == nil {
			return nil, fmt.Errorf("the fake cannot read the condition %s", c)
		}
		w.text = strings.TrimPrefix(bare(c), m[4]+".")
		s.reads[w.field] = true
		s.conditions = append(s.conditions, w)
	}
	for _, g := range list(m[6]) {
		s.group = append(s.group, exprOf(g))
		s.reads[exprOf(g).field()] = true
	}
	for _, o := range list(m[7]) {
		name, desc := strings.CutSuffix(o, " DESC")
		s.order = append(s.order, ordering{exprOf(name), desc})
		s.reads[exprOf(name).field()] = true
	}
	return s, nil
}

func list(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ", ")
}

func exprOf(text string) expr {
	if strings.HasPrefix(text, "META(") {
		return expr{id: true}
	}
	return expr{parts: split(text)[1:]}
}

func termOf(text string) term {
	if m := sums.FindStringSubmatch(text); m != nil {
		t := term{sum: m[1], name: m[3]}
		if m[2] != "1" {
			t.expr = exprOf(m[2])
		}
		return t
	}
	t := term{expr: exprOf(text), name: "id"}
	if n := len(t.parts); n > 0 {
		t.name = t.parts[n-1]
	} else if !t.id {
		t.name = text
	}
	return t
}

// field returns the first part of a path, or "" for the document's id.
func (e expr) field() string {
	if e.id || len(e.parts) == 0 {
		return ""
	}
	return e.parts[0]
}

// plain reports whether the expression is a field of the document, or its id.
func (e expr) plain() bool { return e.id || len(e.parts) == 1 }

func (e expr) of(r row) any {
	if e.id {
		return r.id
	}
	v, status := find(r.tree, e.parts)
	if status != 0 {
		return nil
	}
	return v
}

// conditionOf parses a condition. Its test is nil if the fake cannot parse it.
func conditionOf(text string) where {
	if m := some.FindStringSubmatch(text); m != nil {
		all, each := exprOf(m[2]), exprOf(m[3])
		return where{field: all.field(), test: func(r row, args map[string]any) bool {
			items, _ := all.of(r).([]any)
			return slices.ContainsFunc(items, func(item any) bool {
				return compare(each.of(row{tree: item}), value(m[4], args)) == 0
			})
		}}
	}
	if m := valued.FindStringSubmatch(text); m != nil {
		e := exprOf(m[1])
		w := where{field: e.field(), test: func(r row, _ map[string]any) bool { return (e.of(r) == nil) == (m[2] != "") }}
		if e.plain() && m[2] == "" {
			w.op = "IS VALUED"
		}
		return w
	}
	if m := among.FindStringSubmatch(text); m != nil {
		e := exprOf(m[1])
		return where{field: e.field(), test: func(r row, args map[string]any) bool {
			v := e.of(r)
			items, _ := value(m[3], args).([]any)
			return v != nil && slices.ContainsFunc(items, func(item any) bool { return compare(v, item) == 0 }) == (m[2] == "")
		}}
	}
	if m := beside.FindStringSubmatch(text); m != nil {
		e := exprOf(m[1])
		w := where{field: e.field(), test: func(r row, args map[string]any) bool {
			v, with := e.of(r), value(m[3], args)
			if v == nil || with == nil || kindOf(v) != kindOf(with) {
				return false
			}
			switch c := compare(v, with); m[2] {
			case "=":
				return c == 0
			case "<":
				return c < 0
			case "<=":
				return c <= 0
			case ">":
				return c > 0
			default:
				return c >= 0
			}
		}}
		if e.plain() {
			w.op, w.operand = m[2], m[3]
		}
		return w
	}
	return where{}
}

// value returns the value of a parameter or a literal.
func value(text string, args map[string]any) any {
	if name, is := strings.CutPrefix(text, "$"); is {
		return args[name]
	}
	v, _ := decode([]byte(strings.ToLower(text)))
	return v
}

func kindOf(v any) int {
	switch v.(type) {
	case nil:
		return 0
	case bool:
		return 1
	case json.Number, float64:
		return 2
	case string:
		return 3
	default:
		return 4
	}
}

// compare orders values by type, and then by value. docs.couchbase.com: "Comparison Operators",
// collation.
func compare(a, b any) int {
	if c := cmp.Compare(kindOf(a), kindOf(b)); c != 0 {
		return c
	}
	switch a := a.(type) {
	case json.Number, float64:
		return cmp.Compare(number(a), number(b))
	case string:
		return cmp.Compare(a, b.(string))
	case bool:
		if a == b.(bool) {
			return 0
		} else if !a {
			return -1
		}
		return 1
	}
	return 0
}

func number(v any) float64 {
	if n, is := v.(float64); is {
		return n
	}
	n, _ := strconv.ParseFloat(string(v.(json.Number)), 64)
	return n
}

// most returns the limit of a statement, or -1 if it has none.
func (s *statement) most(args map[string]any) (int, error) {
	if s.limit == "" {
		return -1, nil
	}
	n, err := strconv.Atoi(fmt.Sprint(value(s.limit, args)))
	if err != nil || n < 0 {
		return 0, fmt.Errorf("the limit %s is no number", s.limit)
	}
	return n, nil
}

// means reports whether a row meets all conditions.
func (s *statement) means(r row, args map[string]any) bool {
	return !slices.ContainsFunc(s.conditions, func(c where) bool { return !c.test(r, args) })
}

func (s *statement) run(docs []row, args map[string]any) ([]any, error) {
	docs = slices.DeleteFunc(docs, func(r row) bool { return !s.means(r, args) })
	before := func(a, b row) int {
		for _, o := range s.order {
			c := compare(o.of(a), o.of(b))
			if o.desc {
				c = -c
			}
			if c != 0 {
				return c
			}
		}
		return cmp.Compare(b.id, a.id) // opposite to an index: a server promises no order here
	}
	if s.group != nil {
		slices.SortFunc(docs, before)
		return s.groups(docs), nil
	}
	n, err := s.most(args)
	if err != nil {
		return nil, err
	}
	if n < 0 {
		n = len(docs)
	}
	docs = first(docs, n, before)
	rows := make([]any, len(docs))
	for i, d := range docs {
		rows[i] = s.answer([]row{d})
	}
	return rows, nil
}

// first returns the first n rows in order, without sorting all of them.
func first(docs []row, n int, before func(a, b row) int) []row {
	if len(docs) <= 2*n {
		slices.SortFunc(docs, before)
		return docs[:min(n, len(docs))]
	}
	best := slices.Clone(docs[:2*n])
	for _, d := range docs[2*n:] {
		if len(best) == 2*n {
			slices.SortFunc(best, before)
			best = best[:n]
		}
		if n > 0 && before(d, best[n-1]) < 0 {
			best = append(best, d)
		}
	}
	return first(best, n, before)
}

func (s *statement) groups(docs []row) (rows []any) {
	of := map[string][]row{}
	var names []string
	for _, d := range docs {
		var name []any
		for _, g := range s.group {
			name = append(name, g.of(d))
		}
		key := string(encode(name))
		if of[key] == nil {
			names = append(names, key)
		}
		of[key] = append(of[key], d)
	}
	for _, name := range names {
		rows = append(rows, s.answer(of[name]))
	}
	return rows
}

// answer returns one row of the result, from one document or a group of them.
func (s *statement) answer(of []row) any {
	if s.raw {
		return s.terms[0].of(of[0])
	}
	answer := object{}
	for _, t := range s.terms {
		if v := t.over(of); v != nil {
			answer[t.name] = v
		}
	}
	return answer
}

func (t *term) over(of []row) any {
	switch t.sum {
	case "COUNT":
		return len(of)
	case "SUM":
		sum := 0
		for _, r := range of {
			n, _ := strconv.Atoi(fmt.Sprint(t.of(r)))
			sum += n
		}
		return sum
	case "MIN":
		var least any
		for _, r := range of {
			if v := t.of(r); v != nil && (least == nil || compare(v, least) < 0) {
				least = v
			}
		}
		return least
	}
	return t.of(of[0])
}
