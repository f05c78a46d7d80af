// Command peers runs what postern is measured against: tunnels that a user could pick
// instead, each in a process with both ends, or in two that it starts, under the load of
// package load.
//
// It is a module of its own, so that every peer is built with the dependencies that it
// asks for itself, at the versions it was released with, and nothing of them reaches
// postern's module. Peers whose dependencies would raise another's are modules in folders
// below. The folder load holds symbolic links to postern's bench/load: one text, compiled
// into all programs.
//
//	go run . SPEC
//
// SPEC is a load.Spec as JSON; one load.Result as JSON comes back on standard output.
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
