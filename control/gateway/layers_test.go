package gateway_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// parts are the packages that a gateway is made of, from the ground up.
var parts = []string{"mail", "plane", "idle", "roster", "issuer", "paths", "neighbours", "enrol", "exchange", "outbound", "clusterset", "gateway"}

// A part knows those before it and none of those after it, least of all the gateway that is
// made of them. The order is that of docs/architecture.md.
func TestPartsKnowOnlyThoseBeforeThem(t *testing.T) {
	const control = "github.com/postern-dev/postern/control/"
	for n, part := range parts {
		for file, f := range parsed(t, part) {
			for _, i := range f.Imports {
				name, err := strconv.Unquote(i.Path.Value)
				if err != nil {
					t.Fatal(err)
				}
				other, ours := strings.CutPrefix(name, control)
				if ours && slices.Index(parts, other) >= n && other != part {
					t.Errorf("%s imports control/%s, which comes after control/%s", file, other, part)
				}
			}
		}
	}
}

// No struct of the parts has so many fields that nobody knows whose they are. Options are
// lists, and have no owner but who makes them.
func TestStructsAreGroupedByOwner(t *testing.T) {
	const most = 15
	for _, part := range parts {
		for file, f := range parsed(t, part) {
			ast.Inspect(f, func(n ast.Node) bool {
				spec, ok := n.(*ast.TypeSpec)
				if !ok {
					return true
				}
				if s, ok := spec.Type.(*ast.StructType); ok && s.Fields.NumFields() > most && spec.Name.Name != "Options" {
					t.Errorf("%s: %s has %d fields, more than %d", file, spec.Name, s.Fields.NumFields(), most)
				}
				return true
			})
		}
	}
}

// parsed are the files of a part, by path; those of tests outside its package are not its own.
func parsed(t *testing.T, part string) map[string]*ast.File {
	t.Helper()
	dir := filepath.Join("..", part)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*ast.File{}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") {
			continue
		}
		file := filepath.Join(dir, e.Name())
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if f.Name.Name == part {
			out[path.Join("control", part, e.Name())] = f
		}
	}
	if len(out) == 0 {
		t.Fatalf("no files of %s were found", part)
	}
	return out
}
