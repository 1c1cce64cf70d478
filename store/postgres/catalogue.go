package postgres

import (
	"bytes"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tuskqueue/tusk/store"
)

const (
	catalogueLeast = 5000        // the fewest rows of the log for which entries are written
	catalogueRows  = 10000       // about how many rows of the log one statement adds
	catalogueLook  = 2000        // entries that one statement reads
	catalogueTime  = time.Second // after this time the rest is left to the next round
)

// catalogue adds entries for new rows of the log to the catalogue, an index for searches by kind, queue, tag,
// state or time.
func (s *Store) catalogue(ctx context.Context, term int64) error {
	for begun, more := time.Now(), true; more && time.Since(begun) < catalogueTime; {
		var err error
		if more, err = s.catalogueNext(ctx, term, catalogueLeast, catalogueRows); err != nil {
			return err
		}
	}
	return nil
}

// catalogueNext adds entries for about the given number of rows, if there are at least least new ones. It reports
// whether more are left.
func (s *Store) catalogueNext(ctx context.Context, term int64, least, rows int) (more bool, err error) {
	err = s.write(ctx, s.inOrder(s.do("hold_lead", term), s.do("catalogue", least, rows).into(func(raw [][]byte) error {
		more = raw[0][0] != 0
		return nil
	})))
	return more, err
}

// lookLog searches the end of the log, and the newest entries of the catalogue. It returns known as false if the
// leader has not written the catalogue for long, or if too many entries reach above the cursor.
func (s *Store) lookLog(
	ctx context.Context, f *store.Filter, rows, most int,
) (ids []store.ID, end store.ID, known bool, err error) {
	var c conditions
	lanes := ""
	if len(f.Queues) > 0 {
		lanes = "\n  where l.id >> 16 = any(" + c.arg(hashesOf(f.Queues)) + ")"
	}
	entries := s.lookEntries(f, &c)
	c.list = nil
	c.of(&store.Filter{Kinds: f.Kinds, Tags: f.Tags, Tenants: f.Tenants, From: f.From, Until: f.Until})
	sure := len(f.Tags) == 0 && len(c.list) == min(len(f.Kinds), 1)           // an entry has no other fields
	inTail, inEntry, each := c, c, "\n       order by u.id desc limit {most}" // the ids of an entry are in order
	if claimed, unclaimed := claims(f.States); claimed != unclaimed {
		sure = false
		inTail.list = append(slices.Clone(c.list), s.lookClaimed("s", claimed))
		inEntry.list = append(slices.Clone(c.list), s.lookClaimed("h", claimed))
	}
	rest, rows := "", 4*rows
	if !sure {
		each, rows = "", rows/2 // because each id is a lookup
		// The ids are looked up one by one, until there are enough.
		rest = "\n   " + strings.ReplaceAll(strings.TrimSpace(s.sql["look_entry"]), "{where}", inEntry.text())
	}
	before, cursor := "", "'"+highestID+"'"
	if !f.Before.IsZero() {
		cursor = c.arg([16]byte(f.Before))
		before = " where u.id < " + cursor
		inTail.list = append(inTail.list, "s.id < "+cursor)
	}
	text := strings.NewReplacer("{lanes}", lanes, "{entries}", entries, "{in_tail}", inTail.text(), "{in_entry}", rest,
		"{before}", before, "{each}", each, "{rows}", strconv.Itoa(rows), "{tail}",
		strconv.Itoa(4*lookRows)).Replace(s.sql["look_log"])
	text = strings.NewReplacer("{cursor}", cursor, "{most}", strconv.Itoa(most), "{many}",
		strconv.Itoa(catalogueLook+1)).Replace(text)
	err = s.queryPinned(ctx, text, func(raw [][]byte) error {
		known = int64Of(raw[0]) <= 4*lookRows
		if raw[1] != nil {
			end = next(idOf(raw[1]))
			known = known && (f.Before.IsZero() || bytes.Compare(end[:], f.Before[:]) < 0)
		}
		if ids = idsOf(raw[2]); len(ids) == most && slices.Compare(ids[most-1][:], end[:]) > 0 {
			end = ids[most-1]
		}
		return nil
	}, c.args...)
	return ids, end, known, err
}

// lookClaimed returns the condition that a task has been claimed, or that it has not.
func (s *Store) lookClaimed(of string, claimed bool) string {
	text := strings.ReplaceAll(strings.TrimSpace(s.sql["look_claimed"]), "{of}", of)
	if claimed {
		return text
	}
	return "not " + text
}

// lookEntries returns SQL that reads entries of the catalogue, by the index that has the fewest.
func (s *Store) lookEntries(f *store.Filter, c *conditions) string {
	if !f.From.IsZero() {
		c.add("c.until_at >= ?", f.From)
	}
	if !f.Until.IsZero() {
		c.add("c.from_at < ?", f.Until)
	}
	if !f.Before.IsZero() {
		c.add("c.oldest < ?", [16]byte(f.Before))
	}
	place, fit := "", ""
	switch claimed, unclaimed := claims(f.States); {
	case claimed && !unclaimed:
		fit = "c.lo < pg_snapshot_xmax(coalesce(p.win, p.done))"
	case unclaimed && !claimed:
		fit = "p.done is null or c.hi > pg_snapshot_xmin(p.done)"
	default:
		place, fit = "false and ", "true"
	}
	each, order := "", "c.newest desc"
	switch {
	case len(f.Tags) > 0:
		each, order = "pg_catalog.unnest("+c.arg(f.Tags[:1])+"::text[]) k(tag)", "c.tag desc, c.newest desc"
		c.list = append(c.list, "c.tag is not null", between("c.tag, c.newest", "k.tag"))
	case len(f.Kinds) > 0:
		each, order = "pg_catalog.unnest("+c.arg(f.Kinds)+"::text[]) k(kind)", "c.kind desc, c.newest desc"
		c.list = append(c.list, "c.tag is null", between("c.kind, c.newest", "k.kind"))
	case len(f.Queues) > 0:
		each, order = "pg_catalog.unnest("+c.arg(hashesOf(f.Queues))+"::bigint[]) k(queue)",
			"c.lane >> 16 desc, c.newest desc"
		c.list = append(c.list, "c.tag is null", between("c.lane >> 16, c.newest", "k.queue"))
	default:
		c.list = append(c.list, "c.tag is null")
	}
	if len(f.Queues) > 0 {
		c.add("c.lane >> 16 = any(?)", hashesOf(f.Queues))
	}
	text := strings.NewReplacer("{place}", place, "{fit}", fit, "{base}", c.text(), "{order}",
		order).Replace(s.sql["look_entries"])
	if each == "" {
		return "(" + text + ") c"
	}
	return each + " cross join lateral (\n" + text + ") c"
}

// claims reports whether a search for these states includes claimed tasks of the log, and
// whether it includes unclaimed ones.
func claims(states []store.State) (claimed, unclaimed bool) {
	return len(states) == 0 || slices.Contains(states, store.Running) || slices.Contains(states, store.Completed),
		len(states) == 0 || slices.Contains(states, store.Available)
}

// next returns the id after an id.
func next(id store.ID) store.ID {
	for i := len(id) - 1; i >= 0; i-- {
		if id[i]++; id[i] != 0 {
			break
		}
	}
	return id
}
