package scratch

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
)

// Program is a Go program to compile.
type Program struct {
	// Dir is a folder of the module; "" is the working directory.
	Dir string
	// Package is its main package, as `go build` takes it.
	Package string
	// Version is set as main.version unless it is empty.
	Version string
}

// Compile builds a static program for Linux into the file out: stripped, without the
// build machine's paths, and for the oldest processors of the architecture, whatever the
// environment asks for.
func Compile(ctx context.Context, p Program, arch, out string) error {
	ldflags := "-s -w -buildid="
	if p.Version != "" {
		ldflags += " -X main.version=" + p.Version
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", ldflags, "-o", out, p.Package)
	cmd.Dir = p.Dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOEXPERIMENT=")
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("compile %s for %s: %w\n%s", p.Package, arch, err, output.Bytes())
	}
	return nil
}
