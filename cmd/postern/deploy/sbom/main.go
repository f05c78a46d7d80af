// Command sbom writes what a built postern program is made of: the modules that the linker was given
// and the standard library, as the program's build information lists them, in CycloneDX 1.6.
//
//	go run ./cmd/postern/deploy/sbom -o dist/postern.cdx.json -version v1.0.0 bin/postern
//
// The program may be for any system. SOURCE_DATE_EPOCH (seconds since 1970) is the document's time,
// so that a release can be reproduced; without it that is 1970-01-01.
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"github.com/postern-dev/postern/cmd/postern/deploy/epoch"
)

func main() {
	flags := flag.NewFlagSet("sbom", flag.ExitOnError)
	out := flags.String("o", "", "document to write (required)")
	version := flags.String("version", "devel", "version of the program")
	_ = flags.Parse(os.Args[1:]) // which ends the program on an error
	if err := run(*out, *version, flags.Args()); err != nil {
		fmt.Fprintf(os.Stderr, "sbom: %v\n", err)
		os.Exit(1)
	}
}

func run(out, version string, programs []string) error {
	if out == "" || len(programs) != 1 {
		return errors.New("usage: sbom -o FILE [-version V] PROGRAM")
	}
	at, err := epoch.Time()
	if err != nil {
		return err
	}
	content, err := os.ReadFile(programs[0])
	if err != nil {
		return err
	}
	info, err := buildinfo.ReadFile(programs[0])
	if err != nil {
		return fmt.Errorf("read what %s was built of: %w", programs[0], err)
	}
	bom, err := about(info, sha256.Sum256(content), version, at)
	if err != nil {
		return err
	}
	file, err := os.Create(out)
	if err != nil {
		return err
	}
	return errors.Join(cdx.NewBOMEncoder(file, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6), file.Close())
}

// about makes the document of a program whose bytes have the checksum sum.
func about(info *debug.BuildInfo, sum [sha256.Size]byte, version string, at time.Time) (*cdx.BOM, error) {
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	program := component(cdx.ComponentTypeApplication, info.Main.Path, version)
	// Programs for several systems have one version, and a document each.
	program.BOMRef += "?goarch=" + settings["GOARCH"] + "&goos=" + settings["GOOS"]
	program.PackageURL = program.BOMRef
	program.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}}

	components := []cdx.Component{component(cdx.ComponentTypeLibrary, "std", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		c := component(cdx.ComponentTypeLibrary, m.Path, m.Version)
		if m.Sum != "" {
			tree, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:"))
			if err != nil || len(tree) != sha256.Size {
				return nil, fmt.Errorf("%s %s: %q is no checksum of a module", m.Path, m.Version, m.Sum)
			}
			c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(tree)}}
		}
		components = append(components, c)
	}
	uses := make([]string, len(components))
	for i, c := range components {
		uses[i] = c.BOMRef
	}

	bom := cdx.NewBOM()
	bom.SerialNumber = serial(sum)
	bom.Metadata = &cdx.Metadata{Timestamp: at.UTC().Format(time.RFC3339), Component: &program}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: program.BOMRef, Dependencies: &uses}}
	return bom, nil
}

// component is a module, which scanners find by its package URL.
func component(kind cdx.ComponentType, path, version string) cdx.Component {
	url := "pkg:golang/" + path + "@" + version
	return cdx.Component{BOMRef: url, Type: kind, Name: path, Version: version, PackageURL: url}
}

// serial is a UUID of version 8 (RFC 9562), made of a program's checksum: the same program has the
// same.
func serial(sum [sha256.Size]byte) string {
	sum[6] = sum[6]&0x0f | 0x80
	sum[8] = sum[8]&0x3f | 0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}
