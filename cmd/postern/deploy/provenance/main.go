// Command provenance writes how the files of a release were made: an in-toto statement with SLSA
// provenance v1 about each file of a list of checksums. README.md says what is in it.
//
//	go run ./cmd/postern/deploy/provenance -o dist/postern.provenance.json -version v1.0.0 -commit … dist/SHA256SUMS
//
// It is not signed, has no time and nothing of the machine, so that a release can be reproduced.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
)

const (
	source = "https://github.com/postern-dev/postern"
	// buildType and unknownBuilder are described where they lead.
	buildType      = source + "/blob/main/cmd/postern/deploy/provenance/README.md#build-type"
	unknownBuilder = source + "/blob/main/cmd/postern/deploy/provenance/README.md#unknown-builder"
)

// build is what is told of one.
type build struct {
	version   string // of the release
	commit    string // of the sources, SHA-1
	builder   string // URI
	downloads string // where the files will be
	packager  string // the command that makes deb and rpm
}

func main() {
	flags := flag.NewFlagSet("provenance", flag.ExitOnError)
	var b build
	out := flags.String("o", "", "statement to write (required)")
	flags.StringVar(&b.version, "version", "", "version of the release (required)")
	flags.StringVar(&b.commit, "commit", "", "commit that it is made of (required)")
	flags.StringVar(&b.builder, "builder", unknownBuilder, "URI of who builds")
	flags.StringVar(&b.downloads, "downloads", "", "address at which the files will be")
	flags.StringVar(&b.packager, "packager", "", "command that makes deb and rpm")
	_ = flags.Parse(os.Args[1:]) // which ends the program on an error
	if err := run(*out, b, flags.Args()); err != nil {
		fmt.Fprintf(os.Stderr, "provenance: %v\n", err)
		os.Exit(1)
	}
}

func run(out string, b build, lists []string) error {
	if out == "" || b.version == "" || b.commit == "" || len(lists) != 1 {
		return errors.New("usage: provenance -o FILE -version V -commit C [-builder URI] [-downloads URL] [-packager COMMAND] SHA256SUMS")
	}
	sums, err := os.ReadFile(lists[0])
	if err != nil {
		return err
	}
	subjects, err := files(string(sums))
	if err != nil {
		return fmt.Errorf("%s: %w", lists[0], err)
	}
	text, err := json.MarshalIndent(about(subjects, b), "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(out, append(text, '\n'), 0o644)
}

var checksum = regexp.MustCompile(`^([0-9a-f]{64})  ([^/]+)$`)

// files reads what sha256sum prints.
func files(sums string) ([]descriptor, error) {
	var list []descriptor
	for line := range strings.Lines(sums) {
		found := checksum.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if found == nil {
			return nil, fmt.Errorf("%q is no checksum of a file", line)
		}
		list = append(list, descriptor{Name: found[2], Digest: map[string]string{"sha256": found[1]}})
	}
	if list == nil {
		return nil, errors.New("it lists no file")
	}
	return list, nil
}

// statement is of https://in-toto.io/Statement/v1, with the predicate https://slsa.dev/provenance/v1.
type statement struct {
	Type          string       `json:"_type"`
	Subject       []descriptor `json:"subject"`
	PredicateType string       `json:"predicateType"`
	Predicate     predicate    `json:"predicate"`
}

type descriptor struct {
	URI    string            `json:"uri,omitempty"`
	Name   string            `json:"name,omitempty"`
	Digest map[string]string `json:"digest,omitempty"`
}

type predicate struct {
	BuildDefinition struct {
		BuildType            string            `json:"buildType"`
		ExternalParameters   map[string]string `json:"externalParameters"`
		InternalParameters   map[string]string `json:"internalParameters"`
		ResolvedDependencies []descriptor      `json:"resolvedDependencies"`
	} `json:"buildDefinition"`
	RunDetails struct {
		Builder struct {
			ID string `json:"id"`
		} `json:"builder"`
	} `json:"runDetails"`
}

func about(subjects []descriptor, b build) statement {
	s := statement{Type: "https://in-toto.io/Statement/v1", Subject: subjects, PredicateType: "https://slsa.dev/provenance/v1"}
	d := &s.Predicate.BuildDefinition
	d.BuildType = buildType
	d.ExternalParameters = map[string]string{"version": b.version, "downloads": b.downloads}
	d.InternalParameters = map[string]string{"packager": b.packager}
	d.ResolvedDependencies = []descriptor{
		{URI: "git+" + source + "@" + b.commit, Digest: map[string]string{"gitCommit": b.commit}},
		{URI: "pkg:golang/std@" + strings.TrimPrefix(runtime.Version(), "go")},
	}
	s.Predicate.RunDetails.Builder.ID = b.builder
	return s
}
