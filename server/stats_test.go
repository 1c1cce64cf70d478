package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

// minutely has statistics by the minute. It counts how many are read at once.
type minutely struct {
	store.Store
	minutes []store.Stat
	most    int
}

func (c *minutely) Stats(_ context.Context, f store.StatsFilter) ([]store.Stat, error) {
	sums := store.NewSums(f)
	for i := range c.minutes {
		sums.Add(&c.minutes[i])
	}
	stats := sums.Stats()
	c.most = max(c.most, len(stats))
	return stats, nil
}

func TestFewStatisticsAreReadAtATime(t *testing.T) {
	const pairs, minutes = 40, 1400
	s := &minutely{Store: memory.New()}
	newest := time.Now().UTC().Truncate(time.Minute)
	for ago := minutes - 1; ago >= 0; ago-- {
		for n := range pairs {
			s.minutes = append(s.minutes, store.Stat{At: newest.Add(-time.Duration(ago) * time.Minute),
				Queue: fmt.Sprintf("q%02d", n), Kind: "k", Completed: 1})
		}
	}
	_, _, at := devSite(t, s)
	read := func(query string) (status int, list StatList, text string) {
		t.Helper()
		a, err := http.Get(at + "/api/v1/stats?" + query)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		body, err := io.ReadAll(a.Body)
		if err == nil && a.StatusCode == http.StatusOK {
			err = json.Unmarshal(body, &list)
		}
		if err != nil {
			t.Fatal(err)
		}
		return a.StatusCode, list, string(body)
	}
	if status, _, text := read("from=24h"); status != http.StatusUnprocessableEntity {
		t.Errorf("%d statistics: %d, %.200s", pairs*minutes, status, text)
	}
	for _, c := range []struct {
		query  string
		bucket time.Duration
		queue  string
	}{{"from=24h&queue=q07", time.Minute, "q07"}, {"from=20h", time.Minute, ""}, {"from=24h&bucket=hour", time.Hour, ""},
		{"", time.Minute, ""}} {
		status, list, text := read(c.query)
		if status != http.StatusOK {
			t.Errorf("%s: %d, %.200s", c.query, status, text)
			continue
		}
		seen := map[string]bool{}
		done := int64(0)
		for i, one := range list.Stats {
			of := fmt.Sprint(one.At, one.Queue)
			if seen[of] || !one.At.Equal(one.At.Truncate(c.bucket)) || i > 0 && one.At.Before(list.Stats[i-1].At) ||
				c.queue != "" && one.Queue != c.queue {
				t.Fatalf("%s: %d: %+v", c.query, i, one)
			}
			seen[of] = true
			done += one.Completed
		}
		want := int64(pairs * minutes)
		switch c.query {
		case "from=24h&queue=q07":
			want = minutes
		case "from=20h":
			want = pairs * 1200
		case "":
			want = pairs * 60
		}
		if done < want-2*pairs || done > want+2*pairs { // a minute may have passed
			t.Errorf("%s: %d attempts, want %d", c.query, done, want)
		}
	}
	if s.most > 2*statsAtOnce {
		t.Errorf("%d statistics were read at once", s.most)
	}
}
