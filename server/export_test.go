package server

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/memory"
)

func TestAnExportThatStopsAtItsLimitNamesTheRest(t *testing.T) {
	s, client, url := devSite(t, memory.New())
	s.exportLimit = 2 * store.MaxPage
	const tasks = 2*store.MaxPage + 7
	for n := range tasks {
		args := tusk.RawArgs{Name: "k", JSON: fmt.Appendf(nil, `{"n":%d}`, n)}
		if _, err := client.Enqueue(t.Context(), args, nil); err != nil {
			t.Fatal(err)
		}
	}
	export := func(query string) (lines int, next string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), "GET", url+"/api/v1/tasks/export?"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		text, err := io.ReadAll(a.Body)
		if err != nil || a.StatusCode != http.StatusOK {
			t.Fatal(a.Status, err)
		}
		return strings.Count(string(text), "\n"), a.Trailer.Get("Tusk-Next")
	}
	for _, query := range []string{"kind=k", "from=1h&args=n", "kind=k&format=csv"} {
		all := 0
		for next, rounds := "", 0; rounds == 0 || next != ""; rounds++ {
			var lines int
			if next != "" {
				next = "&cursor=" + next
			}
			lines, next = export(query + next)
			if all += lines; rounds > 10 {
				t.Fatalf("%s: it does not end", query)
			}
			if rounds == 0 && next == "" {
				t.Errorf("%s: %d of %d tasks, and nothing says that there is more", query, lines, tasks)
			}
		}
		if strings.HasSuffix(query, "csv") {
			all-- // the names of the columns
		}
		if all != tasks {
			t.Errorf("%s: %d of %d tasks are exported", query, all, tasks)
		}
	}
}
