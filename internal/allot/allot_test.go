package allot

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tuskqueue/tusk/store"
)

var epoch = time.Unix(1e9, 0)

// group makes n waiting tasks of a tenant's partition. Their ids name it.
func group(tenant byte, partition byte, held, n int) store.Turns {
	g := store.Turns{Queue: "q", Tenant: string(tenant), Partition: string(partition), Held: int64(held)}
	for i := range n {
		g.Waiting = append(g.Waiting, store.ID{tenant, partition, byte(i >> 8), byte(i)})
	}
	return g
}

func pick(w Waiting, shares *Shares, rates Rates, now time.Time) []store.ID {
	ids, _ := Pick(w, shares, rates, now)
	return ids
}

func count(ids []store.ID) map[string]int {
	n := map[string]int{}
	for _, id := range ids {
		n[string(id[0])]++
	}
	return n
}

func TestTurnsAreSharedByWeight(t *testing.T) {
	w := Waiting{Room: 90, Limits: Limits{Tenants: map[string]Tenant{"b": {Weight: 2}}},
		Groups: []store.Turns{group('a', 0, 0, 1000), group('b', 0, 0, 1000)}}
	got := count(pick(w, &Shares{}, Rates{}, epoch))
	if got["a"] != 30 || got["b"] != 60 {
		t.Errorf("%v", got)
	}
}

func TestALatecomerIsServedAtOnceAndSavesNothingUp(t *testing.T) {
	var shares Shares
	heavy := Waiting{Room: 100, Groups: []store.Turns{group('a', 0, 0, 1000)}}
	pick(heavy, &shares, Rates{}, epoch)
	both := Waiting{Room: 10, Groups: []store.Turns{group('a', 0, 0, 1000), group('b', 0, 0, 1000)}}
	if got := count(pick(both, &shares, Rates{}, epoch)); got["b"] != 5 && got["b"] != 6 {
		t.Errorf("%v", got)
	}
}

func TestLimitsOfConcurrencyHold(t *testing.T) {
	groups := []store.Turns{group('a', 1, 1, 10), group('a', 2, 0, 10), group('b', 1, 3, 10), group('c', 1, 0, 10),
		group('d', 0, 2, 0)}
	for _, c := range []struct {
		name   string
		limits Limits
		want   string
	}{
		{"none", Limits{}, "map[a:20 b:10 c:10]"},
		{"of the queue", Limits{Concurrency: 9}, "map[a:1 b:1 c:1]"},
		{"of the queue, all gone", Limits{Concurrency: 6}, "map[]"},
		{"per tenant", Limits{PerTenant: 3}, "map[a:2 c:3]"},
		{"of one tenant", Limits{PerTenant: 3, Tenants: map[string]Tenant{"c": {Concurrency: 1}}}, "map[a:2 c:1]"},
		{"per partition", Limits{PerPartition: 1}, "map[a:1 c:1]"},
	} {
		w := Waiting{Room: 1000, Limits: c.limits, Groups: groups}
		if got := fmt.Sprint(count(pick(w, &Shares{}, Rates{}, epoch))); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestASerialPartitionKeepsItsOrder(t *testing.T) {
	w := Waiting{Room: 10, Limits: Limits{PerPartition: 1}, Groups: []store.Turns{group('a', 1, 0, 3)}}
	picked := pick(w, &Shares{}, Rates{}, epoch)
	if len(picked) != 1 || picked[0] != w.Groups[0].Waiting[0] {
		t.Errorf("%v", picked)
	}
}

func TestATokenBucketRefillsAndBounds(t *testing.T) {
	l, rates := Limits{Rate: &Rate{Allowed: 10, Period: time.Second}}, Rates{}
	picks := func(at time.Duration) int {
		return len(pick(Waiting{Room: 100, Limits: l, Groups: []store.Turns{group('a', 0, 0, 100)}}, &Shares{}, rates,
			epoch.Add(at)))
	}
	for _, c := range []struct {
		at   time.Duration
		want int
	}{{0, 10}, {0, 0}, {100 * time.Millisecond, 1}, {550 * time.Millisecond, 4}, {time.Hour, 10}, {time.Hour, 0}} {
		if got := picks(c.at); got != c.want {
			t.Errorf("after %v: %d, want %d", c.at, got, c.want)
		}
	}
}

func TestARateOfEachTenantAndPartition(t *testing.T) {
	one := &Rate{Allowed: 1, Period: time.Minute}
	groups := []store.Turns{group('a', 1, 0, 5), group('a', 2, 0, 5), group('b', 1, 0, 5)}
	rates := Rates{}
	if got := fmt.Sprint(count(pick(Waiting{Room: 100, Limits: Limits{PartitionRate: one}, Groups: groups}, &Shares{},
		rates, epoch))); got != "map[a:2 b:1]" {
		t.Error(got)
	}
	if got := fmt.Sprint(count(pick(Waiting{Room: 100, Limits: Limits{TenantRate: one}, Groups: groups}, &Shares{},
		Rates{}, epoch))); got != "map[a:1 b:1]" {
		t.Error(got)
	}
	l := Limits{PartitionRate: one}
	if tidy(rates, &l, epoch.Add(time.Hour)); len(rates) != 0 {
		t.Errorf("%v", rates)
	}
}

func TestASlidingWindowNeverLetsMoreThroughThanAllowed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		allowed := rapid.IntRange(1, 20).Draw(t, "allowed")
		l, rates := Limits{Rate: &Rate{Allowed: allowed, Period: time.Second, Algorithm: SlidingWindow}}, Rates{}
		now := epoch
		perWindow := map[int64]int{}
		for range 50 {
			now = now.Add(time.Duration(rapid.IntRange(0, 700).Draw(t, "ms")) * time.Millisecond)
			n := len(pick(Waiting{Room: 100, Limits: l, Groups: []store.Turns{group('a', 0, 0, 100)}}, &Shares{}, rates, now))
			if perWindow[rates[""].At.UnixNano()] += n; perWindow[rates[""].At.UnixNano()] > allowed {
				t.Fatalf("%d of %d in one period", perWindow[rates[""].At.UnixNano()], allowed)
			}
		}
	})
}

// A clock that was an hour ahead has begun a window then. When the clock is corrected, no task waits for that window.
func TestAClockThatIsSetBackStallsNoRate(t *testing.T) {
	for _, algorithm := range []Algorithm{TokenBucket, SlidingWindow} {
		l := Limits{Rate: &Rate{Allowed: 5, Period: time.Second, Algorithm: algorithm}}
		rates, now := Rates{}, epoch.Add(time.Hour)
		picked := func() int {
			return len(pick(Waiting{Room: 100, Limits: l, Groups: []store.Turns{group('a', 0, 0, 100)}}, &Shares{}, rates, now))
		}
		if n := picked(); n != 5 {
			t.Fatalf("%s: %d of 5 at first", algorithm, n)
		}
		now = epoch
		if n := picked(); n != 0 {
			t.Errorf("%s: %d more at once when the clock was set back", algorithm, n)
		}
		if next := rates.Next(l.Rate, "", 1, now); next.Sub(now) > 2*time.Second {
			t.Errorf("%s: the next may start in %v", algorithm, next.Sub(now))
		}
		if now = now.Add(2 * time.Second); picked() != 5 {
			t.Errorf("%s: stands still two periods after the clock was set back", algorithm)
		}
	}
}

func TestNobodyIsPickedTwiceAndLimitsHoldWhateverComes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var groups []store.Turns
		for tenant := range rapid.IntRange(1, 5).Draw(t, "tenants") {
			for partition := range rapid.IntRange(1, 3).Draw(t, "partitions") {
				groups = append(groups, group(byte('a'+tenant), byte(partition), rapid.IntRange(0, 5).Draw(t, "held"),
					rapid.IntRange(0, 20).Draw(t, "waiting")))
			}
		}
		l := Limits{Concurrency: rapid.IntRange(0, 30).Draw(t, "limit"),
			PerTenant: rapid.IntRange(0, 10).Draw(t, "per tenant"), PerPartition: rapid.IntRange(0, 6).Draw(t, "per partition")}
		picked := pick(Waiting{Room: rapid.IntRange(0, 200).Draw(t, "room"), Limits: l, Groups: groups}, &Shares{},
			Rates{}, epoch)
		seen := map[store.ID]bool{}
		running, tenants, partitions := 0, map[string]int{}, map[string]int{}
		for _, g := range groups {
			running += int(g.Held)
			tenants[g.Tenant] += int(g.Held)
			partitions[g.Tenant+g.Partition] += int(g.Held)
		}
		for _, id := range picked {
			if seen[id] {
				t.Fatalf("%v twice", id)
			}
			seen[id] = true
			running++
			tenants[string(id[0])]++
			partitions[string(id[0])+string(id[1])]++
			if l.Concurrency > 0 && running > l.Concurrency || l.PerTenant > 0 && tenants[string(id[0])] > l.PerTenant ||
				l.PerPartition > 0 && partitions[string(id[0])+string(id[1])] > l.PerPartition {
				t.Fatalf("%+v broken: %d %v %v", l, running, tenants, partitions)
			}
		}
	})
}

func TestTasksWeighInRates(t *testing.T) {
	for _, algorithm := range []Algorithm{TokenBucket, SlidingWindow} {
		rate := &Rate{Allowed: 10, Period: time.Second, Algorithm: algorithm}
		g := group('a', 0, 0, 4)
		weights := map[store.ID]int{g.Waiting[0]: 4, g.Waiting[1]: 5, g.Waiting[2]: 3, g.Waiting[3]: 1}
		for name, l := range map[string]Limits{"queue": {Rate: rate}, "tenant": {TenantRate: rate},
			"partition": {PartitionRate: rate}} {
			w, rates := Waiting{Room: 100, Limits: l, Groups: []store.Turns{g}, Weights: weights}, Rates{}
			if got := pick(w, &Shares{}, rates, epoch); len(got) != 2 {
				t.Errorf("%s of a %s: %d at once, want 2: the third weighs too much, and the fourth does not pass it", algorithm,
					name, len(got))
			}
			w.Groups = []store.Turns{{Tenant: "a", Partition: g.Partition, Waiting: g.Waiting[2:]}}
			if got := pick(w, &Shares{}, rates, epoch.Add(100*time.Millisecond)); len(got) != 0 {
				t.Errorf("%s of a %s: %d after a tenth of the period", algorithm, name, len(got))
			}
			if got := pick(w, &Shares{}, rates, epoch.Add(2*time.Second)); len(got) != 2 {
				t.Errorf("%s of a %s: %d when all is free again", algorithm, name, len(got))
			}
		}
	}
}

func TestATaskThatWeighsMoreThanIsAllowedRunsWhenNothingIsUsed(t *testing.T) {
	g := group('a', 0, 0, 2)
	w := Waiting{Room: 100, Limits: Limits{Rate: &Rate{Allowed: 10, Period: time.Second}}, Groups: []store.Turns{g},
		Weights: map[store.ID]int{g.Waiting[0]: 30}}
	rates := Rates{}
	if got := pick(w, &Shares{}, rates, epoch); len(got) != 1 {
		t.Fatalf("%d at once", len(got))
	}
	w.Groups[0].Waiting = g.Waiting[1:]
	for after, want := range map[time.Duration]int{time.Second: 0, 2 * time.Second: 0} {
		if got := pick(w, &Shares{}, rates, epoch.Add(after)); len(got) != want {
			t.Errorf("after %v: %d, want %d", after, len(got), want)
		}
	}
	if got := pick(w, &Shares{}, rates, epoch.Add(2200*time.Millisecond)); len(got) != 1 {
		t.Error("what it weighed is never paid off")
	}
}

func TestALowerRateHoldsFromNowOn(t *testing.T) {
	for _, algorithm := range []Algorithm{TokenBucket, SlidingWindow} {
		w := Waiting{Room: 10000, Limits: Limits{Rate: &Rate{Allowed: 1000, Period: time.Minute, Algorithm: algorithm}},
			Groups: []store.Turns{group('a', 0, 0, 200), group('b', 0, 0, 200), group('c', 0, 0, 200)}}
		rates := Rates{}
		if got := pick(w, &Shares{}, rates, epoch); len(got) != 600 {
			t.Fatalf("%s: %d at once", algorithm, len(got))
		}
		w.Limits.Rate = &Rate{Allowed: 10, Period: time.Minute, Algorithm: algorithm}
		if got := pick(w, &Shares{}, rates, epoch.Add(time.Second)); len(got) != 0 {
			t.Errorf("%s: %d start at once though more have started than the lower rate allows", algorithm, len(got))
		}
		if got := pick(w, &Shares{}, rates, epoch.Add(3*time.Minute)); len(got) != 10 {
			t.Errorf("%s: %d start three periods later, want 10", algorithm, len(got))
		}
	}
}

func TestTheRateOfAQueueHoldsBesideThatOfTasksWithoutATenant(t *testing.T) {
	none := group(0, 0, 0, 200)
	none.Tenant = ""
	w := Waiting{Room: 10000, Limits: Limits{Rate: &Rate{Allowed: 100, Period: time.Hour},
		TenantRate: &Rate{Allowed: 10, Period: time.Hour}}}
	for tenant := byte('a'); tenant <= 'z'; tenant++ {
		w.Groups = append(w.Groups, group(tenant, 0, 0, 200))
	}
	w.Groups = append(w.Groups, none)
	rates, started := Rates{}, map[string]int{}
	for range 20 {
		for tenant, n := range count(pick(w, &Shares{}, rates, epoch)) {
			started[tenant] += n
			started["all"] += n
		}
	}
	if started["all"] != 100 || started["a"] > 10 || started["\x00"] > 10 {
		t.Errorf("%v started at once, want 100 in all, and 10 of a tenant at most", started)
	}
}

func TestOnlyWhatLimitsSomethingIsRemembered(t *testing.T) {
	l, rates := Limits{Rate: &Rate{Allowed: 100, Period: time.Second},
		TenantRate: &Rate{Allowed: 2, Period: time.Second}, PartitionRate: &Rate{Allowed: 60, Period: time.Hour}}, Rates{}
	g := group('a', 0, 0, 2)
	weights := map[store.ID]int{g.Waiting[0]: 8}
	g.Waiting = g.Waiting[:1]
	pick(Waiting{Room: 10, Limits: l, Groups: []store.Turns{g}, Weights: weights}, &Shares{}, rates, epoch)
	if tidy(rates, &l, epoch.Add(3*time.Second)); len(rates) != 2 {
		t.Errorf("%d, want that of the tenant, whose debt is not paid off, and that of the partition", len(rates))
	}
	if tidy(rates, &l, epoch.Add(5*time.Second)); len(rates) != 1 {
		t.Errorf("%d, want that of the partition", len(rates))
	}
	if tidy(rates, &l, epoch.Add(9*time.Minute)); len(rates) != 0 {
		t.Errorf("%d are left when all may start as if nothing had", len(rates))
	}
}

func TestATenantWithHeavyTasksGetsFewer(t *testing.T) {
	a, b := group('a', 0, 0, 100), group('b', 0, 0, 100)
	weights := map[store.ID]int{}
	for _, id := range a.Waiting {
		weights[id] = 4
	}
	got := count(pick(Waiting{Room: 50, Groups: []store.Turns{a, b}, Weights: weights}, &Shares{}, Rates{}, epoch))
	if got["a"] != 10 || got["b"] != 40 {
		t.Errorf("%v", got)
	}
}

func TestAGroupThatMayHaveMoreIsToldOf(t *testing.T) {
	for _, c := range []struct {
		heads, room int
		short       bool
	}{{5, 10, true}, {6, 10, false}, {5, 4, false}} {
		if _, short := Pick(Waiting{Room: c.room, Heads: c.heads, Groups: []store.Turns{group('a', 0, 0, 5)}}, &Shares{},
			Rates{}, epoch); short != c.short {
			t.Errorf("%+v: %v", c, short)
		}
	}
}

func TestALimitOfWorkersAloneTakesNoTurns(t *testing.T) {
	one := &Rate{Allowed: 1, Period: time.Second}
	for _, c := range []struct {
		l    Limits
		want bool
	}{
		{Limits{}, true}, {Limits{PerWorker: 2}, false}, {Limits{PerWorker: 2, Concurrency: 1}, true},
		{Limits{PerWorker: 2, PerTenant: 1}, true},
		{Limits{PerWorker: 2, PerPartition: 1}, true}, {Limits{PerWorker: 2, TenantRate: one}, true},
		{Limits{PerWorker: 2, Tenants: map[string]Tenant{"a": {}}}, true},
	} {
		if got := c.l.Turns(); got != c.want {
			t.Errorf("%+v: %v", c.l, got)
		}
	}
}

func TestATaskThatHasPaidStartsThoughTheRateIsUsedUp(t *testing.T) {
	l, rates := Limits{Rate: &Rate{Allowed: 1, Period: time.Hour}}, Rates{}
	g := group('a', 0, 0, 3)
	w := Waiting{Room: 10, Limits: l, Groups: []store.Turns{g}, Weights: map[store.ID]int{g.Waiting[1]: Paid}}
	if ids := pick(w, &Shares{}, rates, epoch); len(ids) != 2 || rates[""].Used != 1 {
		t.Errorf("%d start, %+v", len(ids), rates[""])
	}
}
