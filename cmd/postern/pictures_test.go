package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The recordings of the screen that documents show are there, are shown, and are pictures by themselves:
// no script, nothing that is fetched, small.
func TestPicturesInMarkdown(t *testing.T) {
	const most = 60_000 // bytes
	shown := map[string]bool{}
	image := regexp.MustCompile(`!\[[^\]]{20,}\]\(([^)\s]+\.svg)\)`)
	for _, file := range markdownFiles(t) {
		for _, m := range image.FindAllStringSubmatch(readDocument(t, file).prose, -1) {
			shown[filepath.Join(repository, filepath.Dir(file), m[1])] = true
		}
	}
	pictures, err := filepath.Glob(filepath.Join(repository, "docs", "pictures", "*.svg"))
	if err != nil || len(pictures) < 5 {
		t.Fatalf("there are %d pictures, %v", len(pictures), err)
	}
	for _, file := range pictures {
		if !shown[file] {
			t.Errorf("no document shows %s, with a text for those who do not see it", file)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if len(data) > most {
			t.Errorf("%s has %d bytes, want at most %d", file, len(data), most)
		}
		if problem := unsafePicture(data); problem != "" {
			t.Errorf("%s: %s", file, problem)
		}
	}
}

// unsafePicture says what a picture should not have; "" for nothing.
func unsafePicture(svg []byte) string {
	elements := 0
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; elements++ {
		t, err := d.Token()
		if errors.Is(err, io.EOF) {
			if elements < 3 {
				return "it is empty"
			}
			return ""
		}
		if err != nil {
			return err.Error()
		}
		switch t := t.(type) {
		case xml.StartElement:
			if !slices.Contains([]string{"svg", "title", "style", "g", "text", "rect", "path"}, t.Name.Local) {
				return "it has an element " + t.Name.Local
			}
			for _, a := range t.Attr {
				if strings.HasPrefix(a.Name.Local, "on") || strings.Contains(a.Name.Local, "href") {
					return "it has an attribute " + a.Name.Local
				}
			}
		case xml.CharData:
			if text := string(t); strings.Contains(text, "url(") || strings.Contains(text, "@import") {
				return "its style fetches something"
			}
		}
	}
}

func TestUnsafePicturesAreFound(t *testing.T) {
	for svg, want := range map[string]string{
		`<svg><title>a</title><text x="1">b</text></svg>`:           "",
		`<svg><title>a</title><script>b</script></svg>`:             "it has an element script",
		`<svg><title>a</title><text onload="b">c</text></svg>`:      "it has an attribute onload",
		`<svg><title>a</title><style>@import "b";</style></svg>`:    "its style fetches something",
		`<svg><title>a</title><style>a{b:url(c)}</style></svg>`:     "its style fetches something",
		`<svg><title>a</title><g xmlns:x="y" x:href="z"></g></svg>`: "it has an attribute href",
	} {
		if got := unsafePicture([]byte(svg)); got != want {
			t.Errorf("%s: got %q, want %q", svg, got, want)
		}
	}
	if unsafePicture([]byte(`<svg><text>`)) == "" || unsafePicture(nil) == "" {
		t.Error("what is cut short is taken for a picture")
	}
}

// Nothing is on the screen that a script cannot have: whatever the screen asks its source for has a
// command with -o json in the table of docs/screen.md.
func TestTheScreensDataIsThereForScripts(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(repository, "docs", "screen.md"))
	if err != nil {
		t.Fatal(err)
	}
	root := newApp(nil, nil, nil, func(string) string { return "" }).rootCommand()
	for _, name := range methodsOf(t, "../../tui/screen/source.go", "Source") {
		row := regexp.MustCompile("(?m)^\\| `" + name + "` \\|.*`(postern [^`]* -o json)`").FindSubmatch(text)
		if row == nil {
			t.Errorf("the table of docs/screen.md has no command with -o json for %s", name)
			continue
		}
		for _, words := range invocations(string(row[1]), "postern") {
			if problem := misused(root, words); problem != "" {
				t.Errorf("%s: %s", row[1], problem)
			}
		}
	}
}

// methodsOf reads the methods of an interface from its file: reflection would link all that there are.
func methodsOf(t *testing.T, file, name string) (methods []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		if spec, ok := n.(*ast.TypeSpec); ok && spec.Name.Name == name {
			for _, m := range spec.Type.(*ast.InterfaceType).Methods.List {
				methods = append(methods, m.Names[0].Name)
			}
		}
		return true
	})
	if len(methods) == 0 {
		t.Fatalf("%s has no methods of %s", file, name)
	}
	return methods
}
