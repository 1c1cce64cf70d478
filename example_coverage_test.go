package tusk_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// plumbing are methods that programs do not call by name.
var plumbing = map[string]bool{"MarshalJSON": true, "UnmarshalJSON": true, "String": true, "Error": true, "Is": true,
	"Unwrap": true, "Kind": true}

func TestEveryAPIHasAnExample(t *testing.T) {
	shown := map[string]bool{}
	files := parsed(t, func(name string) bool { return strings.HasSuffix(name, "_test.go") })
	for name, file := range files {
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !strings.HasPrefix(f.Name.Name, "Example") && !strings.HasPrefix(name, "example") ||
				name == "example_coverage_test.go" {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					shown[s.Sel.Name] = true
				}
				return true
			})
		}
	}
	seen := 0
	for name, file := range parsed(t, func(name string) bool { return !strings.HasSuffix(name, "_test.go") }) {
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !f.Name.IsExported() || plumbing[f.Name.Name] || f.Recv != nil && !exported(f.Recv.List[0].Type) {
				continue
			}
			if seen++; !shown[f.Name.Name] {
				t.Errorf("%s: no example shows %s", name, f.Name.Name)
			}
		}
	}
	if seen < 100 {
		t.Errorf("only %d functions were found", seen)
	}
}

// exported reports whether a receiver's type is exported.
func exported(of ast.Expr) bool {
	for {
		switch e := of.(type) {
		case *ast.StarExpr:
			of = e.X
		case *ast.IndexExpr:
			of = e.X
		case *ast.Ident:
			return e.IsExported()
		default:
			return false
		}
	}
}

// parsed reads the package's files.
func parsed(t *testing.T, which func(name string) bool) map[string]*ast.File {
	t.Helper()
	names, err := filepath.Glob("*.go")
	files, set := map[string]*ast.File{}, token.NewFileSet()
	for _, name := range names {
		if err == nil && which(name) {
			files[name], err = parser.ParseFile(set, name, nil, 0)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return files
}
