package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAStatementIsAboutEachFile(t *testing.T) {
	dir := t.TempDir()
	sums, out := filepath.Join(dir, "SHA256SUMS"), filepath.Join(dir, "statement.json")
	one, two := strings.Repeat("1a", 32), strings.Repeat("2b", 32)
	if err := os.WriteFile(sums, []byte(one+"  one.deb\n"+two+"  two.rpm\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := build{version: "v1.2.3", commit: "c0ffee", builder: "https://builder.example.com", packager: "nfpm"}
	if err := run(out, b, []string{sums}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	// By the names of the specifications, whatever ours are.
	var s struct {
		Type    string `json:"_type"`
		Subject []struct {
			Name   string
			Digest struct{ SHA256 string }
		}
		PredicateType string
		Predicate     struct {
			BuildDefinition struct {
				BuildType            string
				ExternalParameters   struct{ Version string }
				ResolvedDependencies []struct {
					URI    string
					Digest struct{ GitCommit string }
				}
			}
			RunDetails struct{ Builder struct{ ID string } }
		}
	}
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	if s.Type != "https://in-toto.io/Statement/v1" || s.PredicateType != "https://slsa.dev/provenance/v1" {
		t.Errorf("it is a %s with %s", s.Type, s.PredicateType)
	}
	if len(s.Subject) != 2 || s.Subject[0].Name != "one.deb" || s.Subject[1].Digest.SHA256 != two {
		t.Errorf("it is about %+v", s.Subject)
	}
	d := s.Predicate.BuildDefinition
	if !strings.HasPrefix(d.BuildType, "https://") || d.ExternalParameters.Version != b.version || s.Predicate.RunDetails.Builder.ID != b.builder {
		t.Errorf("it says %s", text)
	}
	if len(d.ResolvedDependencies) != 2 || d.ResolvedDependencies[0].Digest.GitCommit != b.commit || !strings.HasSuffix(d.ResolvedDependencies[0].URI, "@"+b.commit) {
		t.Errorf("it is made of %+v", d.ResolvedDependencies)
	}
}

func TestNothingIsSaidOfWhatIsNoListOfChecksums(t *testing.T) {
	dir := t.TempDir()
	sums, out := filepath.Join(dir, "SHA256SUMS"), filepath.Join(dir, "statement.json")
	for _, text := range []string{"", "one.deb\n", strings.Repeat("1a", 32) + "  ../one.deb\n", strings.Repeat("1a", 31) + "  one.deb\n"} {
		if err := os.WriteFile(sums, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := run(out, build{version: "v1.2.3", commit: "c0ffee"}, []string{sums}); err == nil {
			t.Errorf("of %q there is a statement", text)
		}
	}
	if _, err := os.Stat(out); !os.IsNotExist(err) {
		t.Errorf("it is there: %v", err)
	}
}
