package peers

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/postern-dev/postern/control/catalogue"
)

// A condition's reason must be the code's name in control/catalogue, so that readers can find it
// there.
func TestReasonsAreTheNamesOfTheCodes(t *testing.T) {
	names := map[catalogue.Code]string{}
	files, err := filepath.Glob(filepath.Join("..", "..", "catalogue", "codes.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 {
				return true
			}
			if lit, ok := spec.Values[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if code, err := strconv.Unquote(lit.Value); err == nil && strings.HasPrefix(code, "PST") {
					names[catalogue.Code(code)] = spec.Names[0].Name
				}
			}
			return true
		})
	}
	for code, name := range reasons() {
		if names[code] != name {
			t.Errorf("%s is %s in control/catalogue, and %s here", code, names[code], name)
		}
	}
	// The codes of checks of a peer.
	ofPeers := regexp.MustCompile(`^PST0(1..|20[1-8]|22.|30.|32[01]|50[1-7]|6..|72[3-8])$`)
	for code, name := range names {
		if _, there := reasons()[code]; ofPeers.MatchString(string(code)) && !there {
			t.Errorf("%s (%s) has no reason", code, name)
		}
	}
	if len(names) < 60 {
		t.Errorf("only %d codes were found", len(names))
	}
}
