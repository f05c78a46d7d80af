//go:build linux

package kube

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// Program is a program whose version a folder of this tree pins. The folder is a separate module,
// so that the product does not get its dependencies. The program is stored in the user's cache
// like the Kubernetes programs, and built again only if the folder changes.
type Program struct {
	// Folder is the module's folder below testenv.
	Folder string
	// Name is the name of the program, Package its main package.
	Name, Package string
	// Test builds the test program of the package.
	Test bool
	// LDFlags are linker flags.
	LDFlags string
}

// Built returns the program's path, and builds it if necessary. Concurrent processes build it
// once.
func (p Program) Built(ctx context.Context, log io.Writer) (string, error) {
	source, err := sourceFolder(ctx, p.Folder)
	if err != nil {
		return "", err
	}
	sources, err := filepath.Glob(filepath.Join(source, "*.go"))
	if err != nil {
		return "", fmt.Errorf("list the sources of %s: %w", p.Name, err)
	}
	sum := sha256.New()
	for _, file := range append([]string{filepath.Join(source, "go.mod"), filepath.Join(source, "go.sum")}, sources...) {
		content, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("read which %s there shall be: %w", p.Name, err)
		}
		sum.Write(content)
	}
	sum.Write([]byte(p.LDFlags))
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a folder to keep %s in: %w", p.Name, err)
	}
	dir := filepath.Join(cache, "postern", p.Name+"-"+hex.EncodeToString(sum.Sum(nil))[:12])
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the folder for %s: %w", p.Name, err)
	}
	unlock, err := lockFolder(dir)
	if err != nil {
		return "", err
	}
	defer unlock()
	program := filepath.Join(dir, p.Name)
	if holds(dir, []string{p.Name}) == nil {
		return program, nil
	}
	return program, p.build(ctx, source, program, log)
}

// build builds the program. An interrupted build leaves none behind.
func (p Program) build(ctx context.Context, source, program string, log io.Writer) error {
	fmt.Fprintf(log, "building %s (a minute or two, once) as %s\n", p.Name, program)
	partial := program + ".partial"
	verb := []string{"build"}
	if p.Test {
		verb = []string{"test", "-c"}
	}
	args := slices.Concat(verb[:1], []string{"-C", source}, verb[1:], []string{"-trimpath", "-ldflags", p.LDFlags, "-o", partial, p.Package})
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-buildvcs=false")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", p.Name, err, out.Bytes())
	}
	if err := os.Rename(partial, program); err != nil {
		return fmt.Errorf("keep %s: %w", p.Name, err)
	}
	return nil
}
