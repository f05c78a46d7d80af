//go:build linux

// Command kube-binaries builds the Kubernetes programs that tests use, helm and CoreDNS, unless
// they exist already, and prints the folder of the Kubernetes programs. With -version it builds
// those of another version of Kubernetes, for KUBEBUILDER_ASSETS.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"

	"github.com/postern-dev/postern/testenv/kube"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	version := flag.String("version", kube.Version, "version of Kubernetes: this or one of "+strings.Join(kube.OlderVersions, ", "))
	flag.Parse()
	dir, err := build(ctx, *version)
	if err != nil {
		fmt.Fprintf(os.Stderr, "kube-binaries: %v\n", err)
		os.Exit(1)
	}
	fmt.Println(dir)
}

// build returns the folder with the programs of a version.
func build(ctx context.Context, version string) (string, error) {
	if _, err := kube.Helm(ctx, os.Stderr); err != nil {
		return "", err
	}
	if _, err := kube.CoreDNS(ctx, os.Stderr); err != nil {
		return "", err
	}
	return kube.BinariesOf(ctx, version, os.Stderr)
}
