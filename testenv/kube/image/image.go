//go:build linux

// Package image makes images for test clusters, which have no registry to pull from: it
// compiles Go programs and packs them, from scratch, into archives that
// kube.Cluster.Load imports. Pods must say `imagePullPolicy: Never`.
package image

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"

	"github.com/postern-dev/postern/cmd/postern/deploy/image/scratch"
)

// module is the path of the module that the images' sources belong to.
const module = "github.com/postern-dev/postern"

// Names of the images that this package makes.
const (
	PauseName      = "localhost/pause:1"
	TestServerName = "localhost/testserver:1"
)

// Pause writes the image of the pods' sandbox containers to an archive, and keeps its
// program beside it under the returned path.
func Pause(ctx context.Context, archive string) (program string, err error) {
	program = filepath.Join(filepath.Dir(archive), "pause")
	if err := scratch.Compile(ctx, scratch.Program{Package: module + "/testenv/kube/image/pause"}, runtime.GOARCH, program); err != nil {
		return "", err
	}
	return program, Write(archive, PauseName, "/pause", map[string]string{"/pause": program})
}

// busybox is where Debian's busybox-static puts its program, which behaves as the one by
// whose name it is called.
const busybox = "/bin/busybox"

// TestServer writes the image of the server that test pods run (see package testserver)
// to an archive. Since `kubectl cp` runs tar in the pod, it holds that too.
func TestServer(ctx context.Context, archive string) error {
	return Compile(ctx, archive, TestServerName, scratch.Program{Package: module + "/testenv/kube/image/testserver"},
		map[string]string{"/bin/tar": busybox})
}

// Compile writes an image of a Go program to an archive; the program is found in the
// image as /bin/NAME, NAME being the last element of its package's path, and started by
// default. Further programs can be given, as for Write.
func Compile(ctx context.Context, archive, name string, p scratch.Program, further map[string]string) error {
	dir, err := os.MkdirTemp("", "kube-image-")
	if err != nil {
		return fmt.Errorf("make a folder for the program of %s: %w", name, err)
	}
	defer os.RemoveAll(dir)
	base := filepath.Base(p.Package)
	program, entrypoint := filepath.Join(dir, base), "/bin/"+base
	if err := scratch.Compile(ctx, p, runtime.GOARCH, program); err != nil {
		return err
	}
	programs := maps.Clone(further)
	if programs == nil {
		programs = map[string]string{}
	}
	programs[entrypoint] = program
	return Write(archive, name, entrypoint, programs)
}

// Write writes an image of programs that exist already, by their path in the image, to
// an archive. All must be static and for this host's architecture.
func Write(archive, name, entrypoint string, programs map[string]string) error {
	_, err := scratch.WriteFile(archive, scratch.Image{
		Name:      name,
		Platforms: []scratch.Platform{{Arch: runtime.GOARCH, Programs: programs, Entrypoint: entrypoint}},
	})
	return err
}
