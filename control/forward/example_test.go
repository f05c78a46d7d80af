package forward_test

import (
	"context"
	"fmt"
	"io"
	"net"

	"github.com/postern-dev/postern/control/forward"
)

// A local listener leads to a service of a peer. In a gateway Dial uses the tunnel; here it
// connects to a server on this machine.
func ExampleOutbound() {
	ctx := context.Background()
	service, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = service.Close() }()
	go func() {
		c, err := service.Accept()
		if err != nil {
			return
		}
		_, _ = io.Copy(c, c) // until the client has finished
		_ = c.Close()
	}()

	flows := forward.NewFlows(forward.Limits{})
	out := forward.NewOutbound(flows, forward.OutboundOptions{
		Dial: func(ctx context.Context, to forward.Target) (forward.Conn, error) {
			peer, name := to.Peer, to.Service
			fmt.Println("dial", name, "of", peer)
			return forward.DialUpstream(ctx, service.Addr().String())
		},
	})
	out.SetLocals([]forward.Local{{Peer: "cloud", Service: "registry"}})

	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", out.Locals()[0].Address)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, _ = io.WriteString(c, "hello")
	_ = c.(*net.TCPConn).CloseWrite()
	text, err := io.ReadAll(c)
	fmt.Println(string(text), err)
	_ = c.Close()

	out.Close()
	fmt.Println(flows.Drain(ctx))
	// Output:
	// dial registry of cloud
	// hello <nil>
	// <nil>
}
