// Command tsnet runs tailscale's tsnet, two nodes in one process, under the load of package load.
//
// It is a separate module and program: tsnet requires later versions of gVisor and other modules
// than stock wireguard-go, and one program would force these on both. The folder load is a
// symbolic link to the peers', whose files are links to postern's bench/load.
//
//	go run . SPEC
//
// SPEC is a load.Spec as JSON. The output is a load.Result as JSON.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/postern-dev/postern/bench/peers/tsnet/load"
)

func main() {
	subjects := load.Subjects{"tsnet": newEnds, "tsnet-proxy": newProxy}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "tsnet: want one argument, a run's specification as JSON")
		os.Exit(2)
	}
	if err := subjects.Main(ctx, os.Args[1], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "tsnet:", err)
		os.Exit(1)
	}
}
