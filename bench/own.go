package bench

import (
	"context"
	"fmt"
	"net"

	"github.com/postern-dev/postern/bench/load"
	"github.com/postern-dev/postern/discovery/relay"
)

// Own are the runs that a program of this module makes when [Subjects] starts it.
func Own() load.Subjects {
	return load.Subjects{
		Postern:      runPostern,
		PosternPaths: runFound,
		PionUDP:      runRelayed(relay.TransportUDP),
		PionTCP:      runRelayed(relay.TransportTCP),
		CoturnUDP:    runRelayed(relay.TransportUDP),
		CoturnTCP:    runRelayed(relay.TransportTCP),
		Loopback:     runLoopback,
		Cipher:       runCipher,
	}
}

// runLoopback loads the kernel's TCP.
func runLoopback(ctx context.Context, spec load.Spec) (load.Result, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return load.Result{}, fmt.Errorf("listen: %w", err)
	}
	return load.Streams(ctx, spec, load.Ends{
		Listener: l,
		Dial: func(ctx context.Context) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", l.Addr().String())
		},
	})
}
