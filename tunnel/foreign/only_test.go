package foreign

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// decides are the names in package unicode by which code decides what may be shown;
// unicode.IsSpace, IsLetter and the like have other uses.
var decides = map[string]bool{
	"IsControl": true, "IsPrint": true, "IsGraphic": true, "C": true, "Cc": true, "Cf": true, "Co": true, "Zl": true, "Zp": true,
	"Bidi_Control": true, "ReplacementChar": true, "Other_Default_Ignorable_Code_Point": true,
}

// If there were a second sanitiser, it would be forgotten when the first is fixed. So only this
// package decides what may be shown.
func TestThisIsTheOnlySanitiser(t *testing.T) {
	root := filepath.Join("..", "..")
	files := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && path != root || d.Name() == "testdata" || path == filepath.Join(root, "bin")) {
			return fs.SkipDir
		}
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || filepath.Dir(path) == filepath.Join(root, "tunnel", "foreign") {
			return nil
		}
		files++
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, name := range sanitises(file) {
			t.Errorf("%s uses %s: let package foreign decide what may be shown", path, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 300 {
		t.Errorf("only %d files were read: the program is elsewhere", files)
	}
}

func TestASecondSanitiserIsFound(t *testing.T) {
	for source, want := range map[string]string{
		`package p; import "unicode"; func f(r rune) bool { return unicode.IsControl(r) }`:                                           "unicode.IsControl",
		`package p; import u "unicode"; func f(r rune) bool { return u.Is(u.Cf, r) }`:                                                "unicode.Cf",
		`package p; import "strconv"; func f(r rune) bool { return strconv.IsPrint(r) }`:                                             "strconv.IsPrint",
		`package p; import "unicode"; func f(r rune) bool { return unicode.IsSpace(r) }`:                                             "",
		`package p; func f(r rune) bool { return r < 0x20 || r == 0x7f }`:                                                            "",
		`package p; import "unicode"; type x struct{}; var _ = unicode.Letter; func (x) IsControl() bool { return x{}.IsControl() }`: "",
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "p.go", source, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(sanitises(file), " "); got != want {
			t.Errorf("found %q in %s, want %q", got, source, want)
		}
	}
}

// sanitises returns the names by which a file decides what may be shown.
func sanitises(file *ast.File) (found []string) {
	packages := map[string]string{}
	for _, i := range file.Imports {
		path := strings.Trim(i.Path.Value, `"`)
		if path != "unicode" && path != "strconv" {
			continue
		}
		name := path
		if i.Name != nil {
			name = i.Name.Name
		}
		packages[name] = path
	}
	ast.Inspect(file, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := s.X.(*ast.Ident); ok && packages[x.Name] != "" && decides[s.Sel.Name] {
			found = append(found, packages[x.Name]+"."+s.Sel.Name)
		}
		return true
	})
	return found
}
