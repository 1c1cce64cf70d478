package tusk_test

import (
	"encoding/json"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/tuskqueue/tusk"

// mayImport says, for each part of the module, which other parts it may import. A package
// belongs to the part with the longest matching prefix.
var mayImport = map[string][]string{
	"":     {"store", "internal", "cron"},
	"cron": {"internal/duration"},
	"archive": {"store", "mask", "internal/loop", "internal/argmatch", "internal/duration", "internal/payload",
		"internal/gate"},
	"archive/place":      {},
	"mask":               {},
	"archive/rerun":      {"", "store", "archive", "internal/bulk"},
	"store":              {},
	"store/storetest":    {"store", "store/memory"},
	"store/enginetest":   {"store", "internal/cbfake"},
	"store/memory":       {"store", "store/rules", "internal/bell"},
	"store/rules":        {"store"},
	"store/migrate":      {"store"},
	"store/sqlite":       {"store", "internal/disk", "internal/bell"},
	"store/postgres":     {"store", "internal/disk", "internal/together", "internal/bell", "internal/witness"},
	"store/ledgers":      {"store", "store/postgres"},
	"store/mysql":        {"store", "internal/disk", "internal/together", "internal/bell", "internal/witness"},
	"store/couchbase":    {"store", "store/rules", "internal/bell"},
	"internal/lifecycle": {"store"},
	"internal/loop":      {},
	"internal/tick":      {"store", "cron"},
	"internal/allot":     {"store"},
	"internal/bulk":      {"store"},
	"internal/claim":     {"store", "internal/loop"},
	"internal/run":       {"internal/gate", "store"},
	"internal/finish":    {"store"},
	"internal/lease":     {"store", "internal/loop"},
	"internal/tend": {"store", "internal/loop", "internal/lifecycle", "internal/tick", "internal/allot",
		"internal/bulk"},
	"internal/storm":    {"", "store", "archive", "cli", "cmd"},
	"internal/argmatch": {},
	"internal/bell":     {"store", "store/rules"},
	"internal/reach":    {},
	"internal/duration": {},
	"internal/words":    {},
	"internal/form":     {"internal/words"},
	"internal/model":    {},
	"internal/disk":     {},
	"internal/together": {},
	"internal/gate":     {},
	"internal/witness":  {},
	"internal/payload":  {"store"},
	"internal/cbfake":   {},
	"why": {"", "store", "internal/allot", "internal/duration", "internal/lifecycle", "internal/tick",
		"internal/words"},
	"doctor": {"", "store", "server/herald", "internal/duration", "internal/lifecycle", "internal/tend",
		"internal/words"},
	"telemetry":         {"", "store", "server/herald"},
	"telemetry/tracing": {"", "store", "internal/lifecycle"},
	"telemetry/export":  {""},
	"builtin":           {"", "internal/reach", "internal/run", "internal/words"},
	"server/herald":     {"store"},
	"server": {"", "store", "archive", "mask", "server/herald", "cron", "why", "doctor", "internal/tick",
		"internal/reach", "internal/argmatch", "internal/duration", "internal/words"},
	"tusktest": {"", "store", "store/memory"},
	"cli": {"", "store", "archive", "mask", "builtin", "server", "cron", "why", "doctor", "telemetry",
		"internal/tick", "internal/duration", "internal/form", "internal/words", "cli/top"},
	"cli/top":  {"", "store", "why"},
	"cmd/tusk": {"cli"},
	"examples": {"", "store", "builtin", "cron"},
}

type pkg struct {
	ImportPath, Doc string
	Imports, Deps   []string
}

func TestArrowsPointOneWay(t *testing.T) {
	for _, p := range packages(t) {
		part := partOf(p.ImportPath)
		allowed, known := mayImport[part]
		if !known {
			t.Errorf("%s: a package without rules: add it to mayImport", p.ImportPath)
			continue
		}
		for _, path := range p.Imports {
			if path != module && !strings.HasPrefix(path, module+"/") {
				continue
			}
			if to := partOf(path); to != part && !slices.ContainsFunc(allowed, func(a string) bool {
				return to == a || a != "" && strings.HasPrefix(to, a+"/")
			}) {
				t.Errorf("%s imports %s: %q may import only %q", p.ImportPath, path, part, allowed)
			}
		}
	}
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	for _, p := range packages(t) {
		if p.Doc == "" {
			t.Errorf("%s has no doc comment", p.ImportPath)
		}
	}
}

func TestTheLibraryIsLight(t *testing.T) {
	for _, p := range packages(t) {
		light := p.ImportPath == module || p.ImportPath == module+"/store" || p.ImportPath == module+"/store/memory"
		if !light {
			continue
		}
		for _, dep := range p.Deps {
			outside := strings.Contains(strings.SplitN(dep, "/", 2)[0], ".") && !strings.HasPrefix(dep, module)
			if outside {
				t.Errorf("%s depends on %s: only the standard library is allowed", p.ImportPath, dep)
			}
		}
	}
}

func packages(t *testing.T) []pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Doc,Imports,Deps", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := d.Decode(&p); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func partOf(path string) string {
	rest := strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
	for part := rest; part != ""; {
		if _, ok := mayImport[part]; ok {
			return part
		}
		cut := strings.LastIndexByte(part, '/')
		if cut < 0 {
			return rest
		}
		part = part[:cut]
	}
	return ""
}
