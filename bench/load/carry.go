package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
)

// Proxied adds kernel TCP on loopback at both ends of a tunnel: a local listener whose
// connections are forwarded to a service.
func Proxied(ctx context.Context, tunnel Ends) (Ends, error) {
	service, err := listenLocal(ctx)
	if err != nil {
		return Ends{}, err
	}
	go carryAll(tunnel.Listener, dialLocal(service.Addr().String()))
	return Before(ctx, service, tunnel)
}

// Before adds a local listener in front of a dialling end that leads to service.
func Before(ctx context.Context, service net.Listener, tunnel Ends) (Ends, error) {
	front, err := listenLocal(ctx)
	if err != nil {
		return Ends{}, errors.Join(err, service.Close())
	}
	go carryAll(front, tunnel.Dial)
	return Ends{
		Listener: service, Dial: dialLocal(front.Addr().String()), Began: tunnel.Began,
		Close: func() error {
			err := front.Close()
			if tunnel.Close != nil {
				err = errors.Join(err, tunnel.Close())
			}
			return err
		},
	}, nil
}

func listenLocal(ctx context.Context) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return l, nil
}

func dialLocal(at string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", at) }
}

// carryAll accepts connections until the listener is closed, dials for each, and copies both ways
// with [io.Copy] until one end has ended, as tailscaled does for its SOCKS proxy and served ports
// (net/socks5, ipn/ipnlocal).
func carryAll(l net.Listener, dial func(context.Context) (net.Conn, error)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go carry(c, dial)
	}
}

func carry(in net.Conn, dial func(context.Context) (net.Conn, error)) {
	defer in.Close()
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	out, err := dial(ctx)
	if err != nil {
		return
	}
	defer out.Close()
	ended := make(chan struct{}, 2)
	for _, c := range [][2]net.Conn{{in, out}, {out, in}} {
		go func() {
			_, _ = io.Copy(c[0], c[1])
			ended <- struct{}{}
		}()
	}
	<-ended
}
