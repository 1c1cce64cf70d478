package cli

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// No command that shows settings prints a credential, wherever it is set.
func TestConfigShowPrintsNoSecret(t *testing.T) {
	for _, db := range []string{
		"postgres://u:canary@h/db", "postgres://u:can:ary@h/db", "mysql://u:canary@h:3306/db?x=1", "u:canary@tcp(h)/x",
		"u:ca@nary@unix(/run/x)/x",
		"postgres:u:canary@h", "postgres:canary@h/x", "host=h user=u password=canary",
		"postgres://h/db?user=u&password=canary",
		"postgres://u:x@h/db?sslpassword=canary", "postgres://u:@h/db?password=canary", "Server=h;Uid=u;Pwd=canary;",
		"mysql:u:c@tcp(h)/canary@x",
	} {
		sh := newShell(t)
		for _, args := range [][]string{{"config", "show"}, {"config", "show", "--json"}, {"config", "check"},
			{"queues", "list"}} {
			r := sh.run(append(args, "--db", db)...)
			if said := r.out + r.err; strings.Contains(said, "canary") || strings.Contains(said, "nary@") ||
				strings.Contains(said, ":c@") {
				t.Errorf("%v --db %s: %s", args, db, said)
			}
		}
	}
	sh := newShell(t)
	sh.write("secret", "canary\n", 0o600)
	sh.write("tusk.yaml", "serve:\n  oidc_client_secret: canary\n", 0o600)
	for source, env := range map[string][]string{"tusk.yaml:2": nil,
		"TUSK_SERVE_OIDC_CLIENT_SECRET": {"TUSK_SERVE_OIDC_CLIENT_SECRET_FILE=secret"}} {
		sh.env = append([]string{"HOME=/nowhere"}, env...)
		if got := sh.setting("serve.oidc_client_secret"); got != "*** from "+source {
			t.Error(got)
		}
		if out := sh.must("config", "show"); strings.Contains(out, "canary") {
			t.Error(out)
		}
	}
}

func TestConfigCheckWantsAFileWithAnySecretToBeItsOwners(t *testing.T) {
	for _, text := range []string{"db: postgres://u:canary@h/db\n", "db: 'u:canary@tcp(h)/x'\n",
		"serve:\n  oidc_client_secret: canary\n"} {
		sh := newShell(t)
		sh.write("tusk.yaml", text, 0o644)
		if r := sh.run("config", "check"); r.status == exitOK || !strings.Contains(r.out, "chmod 600 tusk.yaml") ||
			strings.Contains(r.out+r.err, "canary") {
			t.Errorf("%q: %d %s%s", text, r.status, r.out, r.err)
		}
		sh.write("tusk.yaml", text, 0o600)
		if r := sh.run("config", "check"); strings.Contains(r.out, "chmod") {
			t.Errorf("%q: %s", text, r.out)
		}
	}
}

func TestCommandsOfTasksGetNoPassword(t *testing.T) {
	sh := filledShell(t)
	sh.env = append(sh.env, "DATABASE_URL=sqlite:tusk.db?canary=1", "DB_PASSWORD=canary",
		"TUSK_SERVE_OIDC_CLIENT_SECRET=canary", "LISTED=yes", "TUSK_WORK_EXEC_ENV=LISTED")
	one := sh.enqueue("leak", "{}")
	other := sh.enqueue("exec", `{"command":["env"]}`)
	p := sh.start("work", "--exec", "leak=env", "--enable-exec", "--until-empty")
	if status := p.status(); status != exitOK {
		t.Fatal(p.log())
	}
	for _, id := range []string{one, other} {
		out := sh.must("tasks", "show", id, "--json")
		if strings.Contains(out, "canary") || !strings.Contains(out, "LISTED=yes") ||
			!strings.Contains(out, "TUSK_TASK_ID="+id) {
			t.Error(out)
		}
	}
}

func TestAKeyRingEncryptsArgsAndIsRotated(t *testing.T) {
	sh := filledShell(t)
	old, young := "old="+strings.Repeat("A", 43)+"=", "new="+strings.Repeat("B", 42)+"A="
	sh.write("ring", young+","+old+"\n", 0o600)
	id := sh.enqueue("keep", `{"n":"canary"}`, "--key-ring", old)
	if out := sh.must("tasks", "show", id, "--json"); strings.Contains(out, "canary") ||
		!strings.Contains(out, "$encrypted") {
		t.Errorf("stored in the clear: %s", out)
	}
	sh.env = append(sh.env, "TUSK_KEY_RING_FILE=ring")
	again := sh.enqueue("keep", `{"n":"canary"}`)
	if out := sh.must("tasks", "show", again, "--json"); !strings.Contains(out, `"key":"new"`) {
		t.Errorf("not encrypted with the first key: %s", out)
	}
	if status := sh.start("work", "--exec", "keep=cat", "--until-empty").status(); status != exitOK {
		t.Fatal(status)
	}
	for _, id := range []string{id, again} {
		if out := sh.must("tasks", "show", id, "--json"); !strings.Contains(out, "canary") { // in the output of cat
			t.Errorf("not decrypted: %s", out)
		}
	}
	if got := sh.setting("key_ring"); got != "*** from TUSK_KEY_RING" {
		t.Error(got)
	}
	for _, bad := range []string{"canary", "a=canary", "a=" + strings.Repeat("A", 42), "=" + strings.Repeat("A", 43) + "=",
		old + "," + old} {
		r := sh.run("tasks", "list", "--key-ring", bad)
		if r.status != exitUsage || strings.Contains(r.err, "canary") || strings.Contains(r.err, "AAAA") {
			t.Errorf("%s: %d %s", bad, r.status, r.err)
		}
	}
}

func TestJSONOnATerminalMovesNoCursor(t *testing.T) {
	sh := filledShell(t)
	id := sh.enqueue("k", `{"n":"a\u009b31m\u007f\u202eb é"}`)
	hostile := "\u009b31m\u007f\u202e"
	piped := sh.must("tasks", "show", id, "--json")
	sh.setup = func(app *App) { app.terminal = true }
	shown := sh.must("tasks", "show", id, "--json")
	if strings.ContainsAny(shown, hostile[:2]+"\x7f\u202e") || strings.Contains(shown, "\u009b") ||
		!strings.Contains(shown, "é") {
		t.Errorf("%q", shown)
	}
	var a, b any
	if json.Unmarshal([]byte(piped), &a) != nil || json.Unmarshal([]byte(shown), &b) != nil || !reflect.DeepEqual(a, b) {
		t.Errorf("%s is not %s", shown, piped)
	}
}
