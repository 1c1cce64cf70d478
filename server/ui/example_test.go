package ui_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/server/ui"
	"github.com/tuskqueue/tusk/store/memory"
)

// A program with its own logins mounts the pages under a path of its own.
func ExampleHandler() {
	client, err := tusk.NewClient(memory.New(), nil)
	if err != nil {
		panic(err)
	}
	pages, err := ui.Handler(client, ui.Options{
		Prefix: "/admin/tusk",
		Who: func(r *http.Request) (access.Identity, error) {
			name := r.Header.Get("X-User") // set by the program's own login
			if name == "" {
				return access.Identity{}, access.ErrUnauthenticated
			}
			return access.Identity{Name: name, Role: access.Operator}, nil
		},
	})
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/admin/tusk/", http.StripPrefix("/admin/tusk", pages))

	for _, user := range []string{"", "ada"} {
		r := httptest.NewRequest("GET", "/admin/tusk/tasks", nil)
		r.Header.Set("X-User", user)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	// Output:
	// 401
	// 200
}
