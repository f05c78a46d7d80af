// Command workload runs third-party software in pods of tests that use a service of another
// cluster: an etcd client, and servers and clients of DNS over UDP and of HTTP/3. It is a
// separate module, so that the product does not get its dependencies.
//
//	workload serve                      serves HTTP/3 at UDP 8443, DNS at UDP 5353 and names, until it is terminated
//	workload etcd ENDPOINT DURATION     writes and reads for that long, and prints a report (JSON)
//	workload http3 URL SIZE             sends SIZE bytes and compares what comes back
//	workload dns ADDRESS:PORT NAME      prints a name's address
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

// patience bounds all clients except etcd.
const patience = 30 * time.Second

var errUsage = errors.New("usage: workload serve | etcd ENDPOINT DURATION | http3 URL SIZE | dns ADDRESS:PORT NAME")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "workload: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	switch {
	case len(args) == 1 && args[0] == "serve":
		return serve(ctx)
	case len(args) == 3 && args[0] == "etcd":
		d, err := time.ParseDuration(args[2])
		if err != nil {
			return err
		}
		return useEtcd(ctx, args[1], d, os.Stdout)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	switch {
	case len(args) == 3 && args[0] == "http3":
		size, err := strconv.Atoi(args[2])
		if err != nil {
			return err
		}
		return useHTTP3(ctx, args[1], size, os.Stdout)
	case len(args) == 3 && args[0] == "dns":
		return useDNS(ctx, args[1], args[2], os.Stdout)
	}
	return errUsage
}
