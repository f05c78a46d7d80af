//go:build linux

// Package mcs has what the conformance suite of the Multi-Cluster Services API (KEP-1645) needs
// in test clusters: the suite itself as a program, its images and the API's definitions.
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

// Suite returns the path of the suite, built when missing: folder conformance, which is
// kubernetes-sigs/mcs-api's own, unmodified, and a module of its own.
func Suite(ctx context.Context, log io.Writer) (string, error) {
	return kube.Program{Folder: "mcs/conformance", Name: "mcs-conformance", Package: ".", Test: true, LDFlags: "-s -w"}.Built(ctx, log)
}

// Names of the images of the suite's pods. It names these; the programs in them are Debian's.
const (
	socatImage    = "docker.io/alpine/socat:1.7.4.4"
	netshootImage = "docker.io/nicolaka/netshoot:v0.15"
)

// busybox is where Debian's busybox-static puts its program, which behaves as the one by whose
// name it is called. As a shell it runs its own nslookup and nc, whatever there are besides.
const busybox = "/bin/busybox"

// Images writes the images of the suite's pods to archives in a folder. Their entry point starts
// what it is given, since the suite's images have none.
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

// librariesOf are the shared libraries that a program is loaded with, the loader included, by
// their paths.
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
