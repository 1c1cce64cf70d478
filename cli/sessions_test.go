package cli

import (
	"testing"

	accounts "github.com/tuskqueue/tusk/server/access"
	"github.com/tuskqueue/tusk/store/sqlite/sqlitefile"
)

func TestAPasswordIsChangedAndSessionsEnd(t *testing.T) {
	sh := filledShell(t)
	sh.stdin = "correct horse\n"
	sh.must("users", "put", "ada", "--role", "operator", "--queue", "mail")
	s, err := sqlitefile.Open(t.Context(), "sqlite:tusk.db")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	login := func(password string) error {
		_, _, err := accounts.NewBook(s).Login(t.Context(), "ada", password)
		return err
	}
	if err := login("correct horse"); err != nil {
		t.Fatal(err)
	}
	sh.stdin = "another horse\n"
	sh.must("users", "password", "ada")
	if rows := sh.json("sessions", "list"); len(rows) != 0 {
		t.Error("the session goes on:", rows)
	}
	if rows := sh.json("users", "list"); rows[0]["role"] != "operator" {
		t.Error("the role has changed:", rows)
	}
	if err := login("correct horse"); err == nil {
		t.Error("the old password is good")
	}
	if err := login("another horse"); err != nil {
		t.Fatal(err)
	}
	if rows := sh.json("sessions", "list"); len(rows) != 1 || rows[0]["identity"] != "user:ada" ||
		rows[0]["sessions"] != 1.0 {
		t.Error(rows)
	}
	sh.must("sessions", "end", "ada")
	sh.fails(exitNotFound, "not_found", nil, "sessions", "end", "ada")
	sh.fails(exitNotFound, "not_found", nil, "users", "password", "eve")
	entries, err := accounts.NewBook(s).Entries(t.Context(), accounts.EntryFilter{})
	if err != nil {
		t.Fatal(err)
	}
	did := map[string]bool{}
	for _, e := range entries {
		did[e.Action+" "+e.Result] = true
	}
	for _, want := range []string{"users.put ok", "users.password ok", "users.password failed", "sessions.end ok"} {
		if !did[want] {
			t.Errorf("not in the audit log: %s: %v", want, did)
		}
	}
}
