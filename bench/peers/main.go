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
//
// # Files
//
//   - main.go: the subjects of this program
//   - wireguard.go: wireguard-go devices
//   - stock.go: with its own network stack
//   - tun_linux.go, tun_other.go: on TUN devices
//   - processes_linux.go: as processes
//   - sites_linux.go: two ends with the kernel's TCP/IP
//   - namespace_linux.go: network namespaces
//   - congestion_linux.go: the kernel's congestion control
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
