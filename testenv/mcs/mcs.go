//go:build linux

// Package mcs provides what the conformance suite of the Multi-Cluster Services API (KEP-1645)
// needs in test clusters: the suite as a program, its images and the API's definitions.
package mcs

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/postern-dev/postern/testenv/kube"
	"github.com/postern-dev/postern/testenv/kube/image"
)

// Suite returns the path of the suite, and builds it if necessary. Its source, in folder
// conformance, is the unmodified suite of kubernetes-sigs/mcs-api, as a separate module.
func Suite(ctx context.Context, log io.Writer) (string, error) {
	return kube.Program{Folder: "mcs/conformance", Name: "mcs-conformance", Package: ".", Test: true, LDFlags: "-s -w"}.Built(ctx, log)
}

// Names of the images that the suite's pods use. The programs in them are Debian's.
const (
	socatImage    = "docker.io/alpine/socat:1.7.4.4"
	netshootImage = "docker.io/nicolaka/netshoot:v0.15"
)

// busybox is the path of the program of Debian's busybox-static. It behaves as the program by
// whose name it is called. As a shell it runs its own nslookup and nc.
const busybox = "/bin/busybox"

// Images writes the images of the suite's pods to archives in a folder. Their entry point runs
// its arguments, because the suite's images have none.
func Images(ctx context.Context, dir string) (archives []string, err error) {
	for _, i := range []struct {
		name              string
		programs, applets []string
	}{
		{socatImage, []string{"/usr/bin/socat"}, []string{"env", "sh", "grep", "tr", "awk", "echo"}},
		{netshootImage, []string{"/bin/sh=/bin/dash", "/usr/bin/nslookup", "/usr/bin/dig", "/usr/bin/nc=/bin/nc.openbsd"}, []string{"env", "sleep", "grep", "tail", "awk", "wget", "cat"}},
	} {
		files := map[string]string{}
		for _, applet := range i.applets {
			files["/bin/"+applet] = busybox
		}
		for _, p := range i.programs {
			at, from, named := strings.Cut(p, "=")
			if !named {
				from = at
			}
			libraries, err := librariesOf(ctx, from)
			if err != nil {
				return nil, err
			}
			maps.Copy(files, libraries)
			files[at] = from
		}
		archive := filepath.Join(dir, fmt.Sprintf("mcs-%d.tar", len(archives)))
		if err := image.Write(archive, i.name, "/bin/env", files); err != nil {
			return nil, err
		}
		archives = append(archives, archive)
	}
	return archives, nil
}

// librariesOf returns the paths of a program's shared libraries, including the loader.
func librariesOf(ctx context.Context, program string) (map[string]string, error) {
	out, err := exec.CommandContext(ctx, "ldd", program).Output()
	if err != nil {
		return nil, fmt.Errorf("find the libraries of %s: %w", program, err)
	}
	files := map[string]string{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		for _, field := range strings.Fields(lines.Text()) {
			if filepath.IsAbs(field) {
				files[field] = field
			}
		}
	}
	return files, nil
}
