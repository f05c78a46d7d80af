//go:build linux

package kube

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/postern-dev/postern/testenv/netlab"
)

// helmVariable selects the major version of helm: 3 (the default) or 4.
const helmVariable = "POSTERN_HELM"

// Helm returns the path of helm, built if missing. That takes a minute the first time, including
// its modules.
func Helm(ctx context.Context, log io.Writer) (string, error) {
	switch major := os.Getenv(helmVariable); major {
	case "", "3":
		return Program{Folder: "kube/helm", Name: "helm", Package: "helm.sh/helm/v3/cmd/helm", LDFlags: helmFlags()}.Built(ctx, log)
	case "4":
		return Program{Folder: "kube/helm4", Name: "helm", Package: "helm.sh/helm/v4/cmd/helm", LDFlags: "-s -w"}.Built(ctx, log)
	default:
		return "", fmt.Errorf("%s=%s: there are 3 and 4", helmVariable, major)
	}
}

// CoreDNS returns the path of CoreDNS, built like helm, for NodeOptions.CoreDNS.
func CoreDNS(ctx context.Context, log io.Writer) (string, error) {
	return Program{Folder: "kube/coredns", Name: "coredns", Package: ".", LDFlags: "-s -w"}.Built(ctx, log)
}

// helmFlags are linker flags for version 3: stripped, and with the Kubernetes version for which
// charts are rendered without a cluster, which would otherwise be v1.20. Version 4 takes that of
// its modules.
func helmFlags() string {
	major, rest, _ := strings.Cut(strings.TrimPrefix(Version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	flags := "-s -w"
	for _, pkg := range []string{"helm.sh/helm/v3/pkg/chartutil", "helm.sh/helm/v3/pkg/lint/rules"} {
		flags += " -X " + pkg + ".k8sVersionMajor=" + major + " -X " + pkg + ".k8sVersionMinor=" + minor
	}
	return flags
}

// Helm runs helm as the cluster's administrator, inside its network namespace, and returns its
// output. program is the result of the function Helm.
func (c *Cluster) Helm(ctx context.Context, program string, args ...string) (string, error) {
	return netlab.Run(ctx, c.options.Namespace, "", append([]string{program, "--kubeconfig", c.kubeconfig}, args...)...)
}
