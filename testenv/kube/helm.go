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
	"strings"

	"github.com/postern-dev/postern/testenv/netlab"
)

// helmPackage is the program that folder helm, a module of its own, pins.
const helmPackage = "helm.sh/helm/v3/cmd/helm"

// Helm returns the path of helm, built when missing: a minute the first time, with its
// modules; nothing after that. It is kept under the user's cache as the Kubernetes
// programs are.
func Helm(ctx context.Context, log io.Writer) (string, error) {
	source, err := sourceFolder(ctx, "helm")
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	for _, file := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(source, file))
		if err != nil {
			return "", fmt.Errorf("read which helm there shall be: %w", err)
		}
		sum.Write(content)
	}
	sum.Write([]byte(helmFlags()))
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a folder to keep helm in: %w", err)
	}
	dir := filepath.Join(cache, "postern", "helm-"+hex.EncodeToString(sum.Sum(nil))[:12])
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the folder for helm: %w", err)
	}
	unlock, err := lockFolder(dir)
	if err != nil {
		return "", err
	}
	defer unlock()
	program := filepath.Join(dir, "helm")
	if holds(dir, []string{"helm"}) == nil {
		return program, nil
	}
	return program, buildHelm(ctx, source, program, log)
}

// buildHelm makes the program. A build that is cut short leaves none behind.
func buildHelm(ctx context.Context, source, program string, log io.Writer) error {
	fmt.Fprintf(log, "building helm (a minute, once) as %s\n", program)
	partial := program + ".partial"
	cmd := exec.CommandContext(ctx, "go", "build", "-C", source, "-trimpath", "-ldflags", helmFlags(), "-o", partial, helmPackage)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-buildvcs=false")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build helm: %w\n%s", err, out.Bytes())
	}
	if err := os.Rename(partial, program); err != nil {
		return fmt.Errorf("keep helm: %w", err)
	}
	return nil
}

// helmFlags are linker flags: stripped, and with the version of Kubernetes that charts are
// rendered for without a cluster, which is v1.20 otherwise.
func helmFlags() string {
	major, rest, _ := strings.Cut(strings.TrimPrefix(Version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	flags := "-s -w"
	for _, pkg := range []string{"helm.sh/helm/v3/pkg/chartutil", "helm.sh/helm/v3/pkg/lint/rules"} {
		flags += " -X " + pkg + ".k8sVersionMajor=" + major + " -X " + pkg + ".k8sVersionMinor=" + minor
	}
	return flags
}

// Helm runs helm as the cluster's administrator, inside its network namespace, and returns
// what it printed. program is what the function Helm returned.
func (c *Cluster) Helm(ctx context.Context, program string, args ...string) (string, error) {
	return netlab.Run(ctx, c.options.Namespace, "", append([]string{program, "--kubeconfig", c.kubeconfig}, args...)...)
}
