//go:build linux

// Package image makes images for test clusters, which have no registry to pull from. It compiles
// Go programs and packs them, from scratch, into archives that kube.Cluster.Load imports. Pods
// must set `imagePullPolicy: Never`.
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

// module is the path of the module with the images' sources.
const module = "github.com/postern-dev/postern"

// Names of the images that this package makes.
const (
	PauseName      = "localhost/pause:1"
	TestServerName = "localhost/testserver:1"
)

// Pause writes the image of the pods' sandbox containers to an archive, and stores its program
// beside it at the returned path.
func Pause(ctx context.Context, archive string) (program string, err error) {
	program = filepath.Join(filepath.Dir(archive), "pause")
	if err := scratch.Compile(ctx, scratch.Program{Package: module + "/testenv/kube/image/pause"}, runtime.GOARCH, program); err != nil {
		return "", err
	}
	return program, Write(archive, PauseName, "/pause", map[string]string{"/pause": program})
}

// busybox is the program of Debian's busybox-static. The name by which it is called selects its
// behaviour.
const busybox = "/bin/busybox"

// TestServer writes the image of the server in test pods (see package testserver) to an archive.
// The image also contains tar, which `kubectl cp` runs in the pod.
func TestServer(ctx context.Context, archive string) error {
	return Compile(ctx, archive, TestServerName, scratch.Program{Package: module + "/testenv/kube/image/testserver"},
		map[string]string{"/bin/tar": busybox})
}

// Compile writes an image of a Go program to an archive. The program is /bin/NAME in the image,
// where NAME is the last element of its package's path, and the entrypoint. Further programs can
// be given, as for Write.
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

// Write writes an image of existing programs, by their path in the image, to an archive. All must
// be static and for this host's architecture.
func Write(archive, name, entrypoint string, programs map[string]string) error {
	_, err := scratch.WriteFile(archive, scratch.Image{
		Name:      name,
		Platforms: []scratch.Platform{{Arch: runtime.GOARCH, Programs: programs, Entrypoint: entrypoint}},
	})
	return err
}
