//go:build linux

// Command kube-binaries builds the Kubernetes programs that tests start, unless they are
// there already, and prints the folder that holds them. With -version it builds the
// control plane of another version of Kubernetes, for KUBEBUILDER_ASSETS.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/postern-dev/postern/testenv/kube"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	version := flag.String("version", "", "version of Kubernetes, such as "+kube.Version)
	flag.Parse()
	var dir string
	var err error
	if *version == "" {
		dir, err = kube.Binaries(ctx, os.Stderr)
	} else {
		dir, err = kube.ControlPlaneBinaries(ctx, *version, os.Stderr)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "kube-binaries: %v\n", err)
		os.Exit(1)
	}
	fmt.Println(dir)
}
