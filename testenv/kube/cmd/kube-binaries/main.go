//go:build linux

// Command kube-binaries builds the Kubernetes programs that tests start, unless they are
// there already, and prints the folder that holds them.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/postern-dev/postern/testenv/kube"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	dir, err := kube.Binaries(ctx, os.Stderr)
	if err != nil {
		fmt.Fprintf(os.Stderr, "kube-binaries: %v\n", err)
		os.Exit(1)
	}
	fmt.Println(dir)
}
