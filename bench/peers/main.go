// Command peers runs the tunnels that postern is compared with, under the load of package load.
// Each runs in one process with both ends, or in two processes that it starts.
//
// It is a separate module, so that every peer is built with the dependency versions that it
// requires, and none of these affect postern's module. Peers whose dependencies would raise
// another's are modules in subfolders. The folder load contains symbolic links to postern's
// bench/load.
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

	"github.com/postern-dev/postern/bench/peers/load"
)

func main() {
	subjects := load.Subjects{
		"stock": newStock, "wireguard-go": newProcesses,
		"wireguard-tun": newTUN, "wireguard-tun-bbr": newTUNWith("bbr"), "wireguard-tun-cubic": newTUNWith("cubic"),
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "peers: want one argument, a run's specification as JSON")
		os.Exit(2)
	}
	if err := subjects.Main(ctx, os.Args[1], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}
