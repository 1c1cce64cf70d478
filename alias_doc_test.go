package tusk_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"testing"

	"github.com/tuskqueue/tusk"
)

// TestCommentsNameTheFieldsThatGodocHides checks types that are aliases of types in internal
// packages: the documentation of this package does not show their fields.
func TestCommentsNameTheFieldsThatGodocHides(t *testing.T) {
	docs := typeDocs(t)
	for name, value := range map[string]any{
		"Aging": tusk.Aging{}, "Limits": tusk.Limits{}, "Operation": tusk.Operation{},
		"QueueRetention": tusk.QueueRetention{},
		"Rate":           tusk.Rate{}, "TenantLimits": tusk.TenantLimits{},
	} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(value)) {
			if !regexp.MustCompile(`\b` + f.Name + `\b`).MatchString(docs[name]) {
				t.Errorf("the comment of %s does not name its field %s", name, f.Name)
			}
		}
	}
	plain := reflect.TypeOf(tusk.Schedule{})
	for _, f := range reflect.VisibleFields(reflect.TypeOf(tusk.ScheduleInfo{})) {
		if _, known := plain.FieldByName(f.Name); known || f.Anonymous || f.Name == "Words" {
			continue
		}
		if !regexp.MustCompile(`\b` + f.Name + `\b`).MatchString(docs["ScheduleInfo"]) {
			t.Errorf("the comment of ScheduleInfo does not name its field %s", f.Name)
		}
	}
}

func typeDocs(t *testing.T) map[string]string {
	t.Helper()
	names, err := filepath.Glob("*.go")
	docs, set := map[string]string{}, token.NewFileSet()
	for _, name := range names {
		var file *ast.File
		if file, err = parser.ParseFile(set, name, nil, parser.ParseComments); err != nil {
			break
		}
		for _, d := range file.Decls {
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.TYPE {
				docs[g.Specs[0].(*ast.TypeSpec).Name.Name] = g.Doc.Text()
			}
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return docs
}
