package cbfake

import (
	"cmp"
	"encoding/json"
	"slices"
	"sort"
)

// entry is what an index has of a version of a document: the values of its fields, in the order of the index.
// Versions with the same values share an entry.
type entry struct {
	values []any
	key    string
	d      *doc
}

// compare orders entries by their values, and then by the ids of their documents.
func (e *entry) compare(other *entry) int {
	for i, v := range e.values {
		if c := compare(v, other.values[i]); c != 0 {
			return c
		}
	}
	return cmp.Compare(e.key, other.key)
}

// valueOf returns the value of a field of a version.
func valueOf(field, key string, v *version) any {
	if field == "" {
		return key
	}
	return v.known[field]
}

// shows reports whether an entry has the values of a version of its document.
func (x *index) shows(e *entry, v *version) bool {
	for i, field := range x.fields {
		if field != "" && compare(e.values[i], v.known[field]) != 0 {
			return false
		}
	}
	return true
}

func (x *index) entryOf(key string, d *doc, v *version) *entry {
	e := &entry{make([]any, len(x.fields)), key, d}
	for i, field := range x.fields {
		e.values[i] = sortable(valueOf(field, key, v))
	}
	return e
}

// sortable returns a value that is compared faster.
func sortable(v any) any {
	if n, is := v.(json.Number); is {
		return number(n)
	}
	return v
}

// entriesOf returns the entries of a document: those that it had, and new ones. Older versions have entries too, since
// a query may still have to see them.
func (x *index) entriesOf(key string, d *doc, had []*entry) (has []*entry) {
	for i := range d.versions {
		v := &d.versions[i]
		if !x.has(key, v) {
			continue
		}
		same := func(e *entry) bool { return x.shows(e, v) }
		if slices.ContainsFunc(has, same) {
			continue
		}
		if at := slices.IndexFunc(had, same); at >= 0 {
			has = append(has, had[at])
		} else {
			has = append(has, x.entryOf(key, d, v))
		}
	}
	return has
}

// update updates the index for a changed document.
func (x *index) update(key string, d *doc) {
	had := x.documents[key]
	has := x.entriesOf(key, d, had)
	for _, e := range had {
		if !slices.Contains(has, e) {
			at, _ := slices.BinarySearchFunc(x.entries, e, (*entry).compare)
			x.entries = slices.Delete(x.entries, at, at+1)
		}
	}
	for _, e := range has {
		if !slices.Contains(had, e) {
			at, _ := slices.BinarySearchFunc(x.entries, e, (*entry).compare)
			x.entries = slices.Insert(x.entries, at, e)
		}
	}
	if x.documents[key] = has; len(has) == 0 {
		delete(x.documents, key)
	}
}

// fill puts many documents in an empty index.
func (x *index) fill(docs map[string]*doc) {
	for key, d := range docs {
		if has := x.entriesOf(key, d, nil); len(has) > 0 {
			x.documents[key], x.entries = has, append(x.entries, has...)
		}
	}
	slices.SortFunc(x.entries, (*entry).compare)
}

// part returns the entries that a statement has to read: those that meet its equalities on the first fields, and its
// bounds of the field after them. It also returns the number of fields with an equality.
func (x *index) part(s *statement, args map[string]any) (part []*entry, equalities int) {
	var equal []any
	for len(equal) < len(x.fields) {
		i := slices.IndexFunc(s.conditions, func(w where) bool {
			return w.op == "=" && w.field == x.fields[len(equal)]
		})
		if i < 0 {
			break
		}
		equal = append(equal, sortable(value(s.conditions[i].operand, args)))
	}
	type bound struct {
		op string
		of any
	}
	var bounds []bound
	for _, w := range s.conditions {
		if w.op != "" && len(equal) < len(x.fields) && w.field == x.fields[len(equal)] {
			bounds = append(bounds, bound{w.op, sortable(value(w.operand, args))})
		}
	}
	// side is negative before the part, and positive behind it.
	side := func(e *entry) int {
		for i, v := range equal {
			if c := compare(e.values[i], v); c != 0 {
				return c
			}
		}
		for _, b := range bounds {
			c := compare(e.values[len(equal)], b.of)
			switch {
			case b.op == "IS VALUED" && c == 0, b.op == ">" && c <= 0, b.op == ">=" && c < 0:
				return -1
			case b.op == "<" && c >= 0, b.op == "<=" && c > 0:
				return 1
			}
		}
		return 0
	}
	from := sort.Search(len(x.entries), func(i int) bool { return side(x.entries[i]) >= 0 })
	to := from + sort.Search(len(x.entries)-from, func(i int) bool { return side(x.entries[from+i]) > 0 })
	return x.entries[from:to], len(equal)
}

// ordered reports whether entries whose first fields are equal, as many as given, are in the order of a statement or
// in the opposite one.
func (x *index) ordered(s *statement, equalities int) bool {
	for i, o := range s.order {
		at := equalities + i
		if !o.plain() || at >= len(x.fields) || o.field() != x.fields[at] || o.desc != s.order[0].desc {
			return false
		}
	}
	return len(s.order) > 0
}

// scan returns the rows among which those of a statement are. If the index has the order of the statement, it stops at
// the limit, but not among rows that the order leaves equal.
func (x *index) scan(s *statement, args map[string]any, most int, visible func(string, *doc) (row, *version)) []row {
	part, equalities := x.part(s, args)
	stops := most >= 0 && s.group == nil && x.ordered(s, equalities)
	var last *entry // the one at the limit
	var rows []row
	for i, e := range part {
		if stops && s.order[0].desc {
			e = part[len(part)-1-i]
		}
		if stops && len(rows) >= most && (last == nil || !slices.EqualFunc(last.values[:equalities+len(s.order)],
			e.values[:equalities+len(s.order)], func(a, b any) bool { return compare(a, b) == 0 })) {
			break
		}
		r, v := visible(e.key, e.d)
		if v == nil || len(e.d.versions) > 1 && !x.shows(e, v) || stops && !s.means(r, args) {
			continue
		}
		if rows = append(rows, r); len(rows) == most {
			last = e
		}
	}
	return rows
}
