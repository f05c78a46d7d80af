package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"

	"github.com/postern-dev/postern/bench/load"
	"github.com/postern-dev/postern/discovery/relay"
)

// Own returns the runs that a program of this module performs when [Subjects] starts it.
func Own() load.Program {
	p := load.Program{
		Subjects: load.Subjects{
			Postern:      newPostern,
			PosternPaths: newFound,
			Unprivileged: newUnprivileged,
			PionUDP:      newRelayed(relay.TransportUDP),
			PionTCP:      newRelayed(relay.TransportTCP),
			CoturnUDP:    newRelayed(relay.TransportUDP),
			CoturnTCP:    newRelayed(relay.TransportTCP),
			Loopback:     newLoopback,
		},
		Alone: map[string]load.Alone{Cipher: runCipher},
	}
	maps.Copy(p.Subjects, ownBinary())
	maps.Copy(p.Subjects, ownGateways())
	return p
}

// newLoopback is the kernel's TCP and UDP without a tunnel.
func newLoopback(ctx context.Context, _ load.Spec) (load.Ends, error) {
	const anyPort = "127.0.0.1:0"
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", anyPort)
	if err != nil {
		return load.Ends{}, fmt.Errorf("listen: %w", err)
	}
	p, err := new(net.ListenConfig).ListenPacket(ctx, "udp", anyPort)
	if err != nil {
		return load.Ends{}, errors.Join(fmt.Errorf("listen: %w", err), l.Close())
	}
	return load.Ends{
		Listener: l,
		Dial: func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
		},
		ListenPacket: func() (net.PacketConn, error) { return p, nil },
		DialPacket: func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "udp", p.LocalAddr().String())
		},
		Close: func() error {
			_ = p.Close() // the load may have closed it already
			return nil
		},
	}, nil
}
