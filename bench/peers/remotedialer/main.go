// Command remotedialer runs github.com/rancher/remotedialer, with which Rancher reaches clusters
// behind NATs, under the load of package load: both its ends in one process.
//
// It is a separate module, like the other peers, at the latest version that Go 1.26.8 can build.
// The folder load is a symbolic link to postern's bench/load.
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

	"github.com/postern-dev/postern/bench/peers/remotedialer/load"
)

func main() {
	subjects := load.Subjects{"remotedialer": newEnds}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "remotedialer: want one argument, a run's specification as JSON")
		os.Exit(2)
	}
	if err := subjects.Main(ctx, os.Args[1], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "remotedialer:", err)
		os.Exit(1)
	}
}
