package main

import (
	"bytes"
	"debug/buildinfo"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// schema is that of CycloneDX 1.6, which comes with the library.
func schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/CycloneDX/cyclonedx-go").Output()
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	for _, name := range []string{"bom-1.6.schema.json", "jsf-0.82.schema.json", "spdx.schema.json"} {
		text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), "schema", strings.Replace(name, "jsf-0.82.schema.json", "jsf-0.82.schemax.json", 1)))
		if err != nil {
			t.Fatal(err)
		}
		document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.AddResource("http://cyclonedx.org/schema/"+name, document); err != nil {
			t.Fatal(err)
		}
	}
	s, err := c.Compile("http://cyclonedx.org/schema/bom-1.6.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The program that is looked at is this test.
func TestADocumentHasWhatAProgramIsMadeOf(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "1767225600")
	var texts [2][]byte
	for i := range texts {
		out := filepath.Join(t.TempDir(), "sbom.json")
		if err := run(out, "v1.2.3", []string{program}); err != nil {
			t.Fatal(err)
		}
		if texts[i], err = os.ReadFile(out); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(texts[0], texts[1]) {
		t.Error("two documents of one program differ")
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(texts[0]))
	if err != nil {
		t.Fatal(err)
	}
	if err := schema(t).Validate(document); err != nil {
		t.Errorf("it is not CycloneDX 1.6: %v\n%s", err, texts[0])
	}

	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(texts[0]), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	if bom.Metadata.Timestamp != "2026-01-01T00:00:00Z" {
		t.Errorf("its time is %s", bom.Metadata.Timestamp)
	}
	if got := bom.Metadata.Component.PackageURL; !strings.HasPrefix(got, "pkg:golang/github.com/postern-dev/postern@v1.2.3?goarch="+runtime.GOARCH+"&goos=") {
		t.Errorf("it is about %s", got)
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	urls := map[string]bool{}
	for _, c := range *bom.Components {
		urls[c.PackageURL] = true
	}
	if len(urls) != len(info.Deps)+1 || !urls["pkg:golang/std@"+strings.TrimPrefix(info.GoVersion, "go")] {
		t.Errorf("%d components with the standard library %v, of %d modules", len(urls), urls, len(info.Deps))
	}
	for _, m := range info.Deps {
		if !urls["pkg:golang/"+m.Path+"@"+m.Version] {
			t.Errorf("%s %s is missing", m.Path, m.Version)
		}
	}
}

func TestWhatIsNoProgramHasNoDocument(t *testing.T) {
	file := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "sbom.json")
	if err := run(out, "v1.2.3", []string{file}); err == nil {
		t.Error("it has one")
	}
	if _, err := os.Stat(out); !os.IsNotExist(err) {
		t.Errorf("it is there: %v", err)
	}
}
