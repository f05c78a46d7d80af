package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/kube/remote"
)

// stdioCommand is run in the gateway's pod by commands elsewhere.
func (a *app) stdioCommand() *cobra.Command {
	return &cobra.Command{
		Use:    remote.Subcommand,
		Short:  "Connect stdin and stdout to the admin socket",
		Long:   "What commands run in the gateway's pod when they reach it with --context, --kubeconfig or -n.",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE:   func(c *cobra.Command, _ []string) error { return a.stdio(c.Context()) },
	}
}

// stdio reports that the gateway is reachable, then copies both ways until either side ends.
func (a *app) stdio(ctx context.Context) error {
	socket := a.socketPath()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return fmt.Errorf("%w on %s: %w", admin.ErrNoGateway, socket, dialCause(err))
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := io.WriteString(a.stdout, remote.Greeting); err != nil {
		return fmt.Errorf("greet: %w", err)
	}
	// A read from stdin cannot be cancelled: the goroutine ends with the process.
	go func() {
		_, _ = io.Copy(conn, a.stdin)
		conn.Close()
	}()
	_, err = io.Copy(a.stdout, conn)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil, errors.Is(err, net.ErrClosed):
		return nil
	}
	return fmt.Errorf("copy from the admin socket: %w", err)
}

// dialCause returns the reason of a failed connection, without the address.
func dialCause(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	return err
}
