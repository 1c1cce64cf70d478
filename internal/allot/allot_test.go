package allot

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tuskqueue/tusk/store"
)

var epoch = time.Unix(1e9, 0)

// group makes n waiting tasks of a tenant's partition; the ids name it.
func group(tenant byte, partition byte, held, n int) store.Turns {
	g := store.Turns{Queue: "q", Tenant: string(tenant), Partition: string(partition), Held: int64(held)}
	for i := range n {
		g.Waiting = append(g.Waiting, store.ID{tenant, partition, byte(i >> 8), byte(i)})
	}
	return g
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
	got := count(Pick(w, &Shares{}, Rates{}, epoch))
	if got["a"] != 30 || got["b"] != 60 {
		t.Errorf("%v", got)
	}
}

func TestALatecomerIsServedAtOnceAndSavesNothingUp(t *testing.T) {
	var shares Shares
	heavy := Waiting{Room: 100, Groups: []store.Turns{group('a', 0, 0, 1000)}}
	Pick(heavy, &shares, Rates{}, epoch)
	both := Waiting{Room: 10, Groups: []store.Turns{group('a', 0, 0, 1000), group('b', 0, 0, 1000)}}
	if got := count(Pick(both, &shares, Rates{}, epoch)); got["b"] != 5 && got["b"] != 6 {
		t.Errorf("%v", got)
	}
}

func TestLimitsOfConcurrencyHold(t *testing.T) {
	groups := []store.Turns{group('a', 1, 1, 10), group('a', 2, 0, 10), group('b', 1, 3, 10), group('c', 1, 0, 10), group('d', 0, 2, 0)}
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
		if got := fmt.Sprint(count(Pick(w, &Shares{}, Rates{}, epoch))); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestASerialPartitionKeepsItsOrder(t *testing.T) {
	w := Waiting{Room: 10, Limits: Limits{PerPartition: 1}, Groups: []store.Turns{group('a', 1, 0, 3)}}
	picked := Pick(w, &Shares{}, Rates{}, epoch)
	if len(picked) != 1 || picked[0] != w.Groups[0].Waiting[0] {
		t.Errorf("%v", picked)
	}
}

func TestATokenBucketRefillsAndBounds(t *testing.T) {
	l, rates := Limits{Rate: &Rate{Allowed: 10, Period: time.Second}}, Rates{}
	pick := func(at time.Duration) int {
		return len(Pick(Waiting{Room: 100, Limits: l, Groups: []store.Turns{group('a', 0, 0, 100)}}, &Shares{}, rates, epoch.Add(at)))
	}
	for _, c := range []struct {
		at   time.Duration
		want int
	}{{0, 10}, {0, 0}, {100 * time.Millisecond, 1}, {550 * time.Millisecond, 4}, {time.Hour, 10}, {time.Hour, 0}} {
		if got := pick(c.at); got != c.want {
			t.Errorf("after %v: %d, want %d", c.at, got, c.want)
		}
	}
}

func TestARateOfEachTenantAndPartition(t *testing.T) {
	one := &Rate{Allowed: 1, Period: time.Minute}
	groups := []store.Turns{group('a', 1, 0, 5), group('a', 2, 0, 5), group('b', 1, 0, 5)}
	rates := Rates{}
	if got := fmt.Sprint(count(Pick(Waiting{Room: 100, Limits: Limits{PartitionRate: one}, Groups: groups}, &Shares{}, rates, epoch))); got != "map[a:2 b:1]" {
		t.Error(got)
	}
	if got := fmt.Sprint(count(Pick(Waiting{Room: 100, Limits: Limits{TenantRate: one}, Groups: groups}, &Shares{}, Rates{}, epoch))); got != "map[a:1 b:1]" {
		t.Error(got)
	}
	l := Limits{PartitionRate: one}
	if rates.Tidy(&l, epoch.Add(time.Hour)); len(rates) != 0 {
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
			n := len(Pick(Waiting{Room: 100, Limits: l, Groups: []store.Turns{group('a', 0, 0, 100)}}, &Shares{}, rates, now))
			if perWindow[rates[""].At.UnixNano()] += n; perWindow[rates[""].At.UnixNano()] > allowed {
				t.Fatalf("%d of %d in one period", perWindow[rates[""].At.UnixNano()], allowed)
			}
		}
	})
}

func TestNobodyIsPickedTwiceAndLimitsHoldWhateverComes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var groups []store.Turns
		for tenant := range rapid.IntRange(1, 5).Draw(t, "tenants") {
			for partition := range rapid.IntRange(1, 3).Draw(t, "partitions") {
				groups = append(groups, group(byte('a'+tenant), byte(partition), rapid.IntRange(0, 5).Draw(t, "held"), rapid.IntRange(0, 20).Draw(t, "waiting")))
			}
		}
		l := Limits{Concurrency: rapid.IntRange(0, 30).Draw(t, "limit"), PerTenant: rapid.IntRange(0, 10).Draw(t, "per tenant"), PerPartition: rapid.IntRange(0, 6).Draw(t, "per partition")}
		picked := Pick(Waiting{Room: rapid.IntRange(0, 200).Draw(t, "room"), Limits: l, Groups: groups}, &Shares{}, Rates{}, epoch)
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
