package allot

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tuskqueue/tusk/store"
)

// Remembered is how long a usage may matter after it was written: two of the longest periods of a rate, because a
// sliding window counts the previous one.
const Remembered = 48 * time.Hour

// pageSize is the approximate number of usages in one record.
const pageSize = 1000

// Book is the usage of a queue's rates as it is stored. A queue may have a partition for each of a million customers,
// whose usage has to be known for a day. So it is stored in pages, and each round writes only the last one: usages
// that change move there. Pages with few usages left are dissolved, and usages whose window is over are dropped.
type Book struct {
	Usage Rates

	queue string
	pages []*page // in the order in which they were begun
	home  map[string]*page
	hand  int // the page that was checked last
}

type page struct {
	number  int
	version int64 // 0 if it is not stored
	names   map[string]bool
}

// OpenBook reads the book of a queue from the records of all queues. A page that cannot be read counts as empty, and
// the error names it.
func OpenBook(queue string, records []store.Record) (b *Book, err error) {
	b = &Book{Usage: Rates{}, queue: queue, home: map[string]*page{}}
	bodies := map[*page][]byte{}
	for _, r := range records {
		if number, own := pageOf(queue, r.Name); own {
			p := &page{number: number, version: r.Version, names: map[string]bool{}}
			b.pages, bodies[p] = append(b.pages, p), r.Body
		}
	}
	slices.SortFunc(b.pages, func(x, y *page) int { return x.number - y.number })
	for _, p := range b.pages { // a usage that has moved to a later page may still be in an earlier one
		var of Rates
		if e := json.Unmarshal(bodies[p], &of); e != nil {
			err = errors.Join(err, fmt.Errorf("usage %s: %w", b.name(p), e))
			continue
		}
		for name, u := range of {
			if u != nil {
				b.Usage[name] = u
				b.move(name, p)
			}
		}
	}
	return b, err
}

// pageOf returns the number of a page of the queue's book by the name of its record.
func pageOf(queue, name string) (number int, own bool) {
	if name == queue {
		return 0, true
	}
	text, own := strings.CutPrefix(name, queue+"/") // no queue's name has a slash
	if number, err := strconv.Atoi(text); own && err == nil {
		return number, true
	}
	return 0, false
}

func (b *Book) name(p *page) string {
	if p.number == 0 {
		return b.queue
	}
	return b.queue + "/" + strconv.Itoa(p.number)
}

// Write returns the record to store before tasks start whose usages, by these names, have changed. If gone is not nil,
// it is a record to delete after that.
func (b *Book) Write(names []string, l *Limits, now time.Time) (put store.Record, gone *store.Record, err error) {
	last := b.last()
	gone = b.dissolve(last, l, now)
	for _, name := range names {
		if b.Usage[name] != nil {
			b.move(name, last)
		}
	}
	b.tidy(last, l, now)
	of := make(Rates, len(last.names))
	for name := range last.names {
		of[name] = b.Usage[name]
	}
	body, err := json.Marshal(of)
	return store.Record{Kind: StateKind, Name: b.name(last), Version: last.version, Body: body}, gone, err
}

// Written sets the version of the record that Write returned last.
func (b *Book) Written(version int64) { b.pages[len(b.pages)-1].version = version }

// last returns the page to write to. It begins a new one if the last is full.
func (b *Book) last() *page {
	number := 0
	if n := len(b.pages); n > 0 {
		p := b.pages[n-1]
		if len(p.names) < pageSize {
			return p
		}
		number = p.number + 1
	}
	p := &page{number: number, names: map[string]bool{}}
	b.pages = append(b.pages, p)
	return p
}

// dissolve checks a few of the pages before the last. If one has few usages left, it moves them to the last page and
// returns the record of the empty one.
func (b *Book) dissolve(last *page, l *Limits, now time.Time) *store.Record {
	before := len(b.pages) - 1
	for range min(3, before) {
		b.hand = (b.hand + 1) % before
		p := b.pages[b.hand]
		if b.tidy(p, l, now); len(p.names) > pageSize/8 {
			continue
		}
		for name := range p.names {
			b.move(name, last)
		}
		b.pages = slices.Delete(b.pages, b.hand, b.hand+1)
		return &store.Record{Kind: StateKind, Name: b.name(p), Version: p.version}
	}
	return nil
}

// move moves a usage to a page.
func (b *Book) move(name string, to *page) {
	if from := b.home[name]; from != nil {
		delete(from.names, name)
	}
	b.home[name], to.names[name] = to, true
}

// tidy drops the usages of a page that no longer matter: full buckets, windows that are over, and usage without a
// limit.
func (b *Book) tidy(p *page, l *Limits, now time.Time) {
	for name := range p.names {
		if r := l.rateOf(name); r == nil || b.Usage.used(r, name, now) == 0 {
			delete(b.Usage, name)
			delete(b.home, name)
			delete(p.names, name)
		}
	}
}

// rateOf returns the limit of a usage by its name; nil if there is none.
func (l *Limits) rateOf(name string) *Rate {
	switch {
	case name == "":
		return l.Rate
	case strings.Contains(name, "/"):
		return l.PartitionRate
	}
	return l.TenantRate
}

// Names returns the names of the usages that change when these of the waiting tasks start.
func (w *Waiting) Names(starting []store.ID) []string {
	starts, names := make(map[store.ID]bool, len(starting)), []string{""}
	for _, id := range starting {
		starts[id] = true
	}
	for _, g := range w.Groups {
		if len(g.Waiting) > 0 && starts[g.Waiting[0]] {
			names = append(names, OfTenant(g.Tenant), partitionOf(&g))
		}
	}
	return names
}

// partitionOf names the usage of a partition. It begins with the tenant, whose name has no slash.
func partitionOf(g *store.Turns) string { return g.Tenant + "/" + g.Partition }
