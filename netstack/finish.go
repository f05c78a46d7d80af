package netstack

import (
	"context"
	"io"
	"net"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// Finish is [Conn.Close] for a stack that goes away next: it returns once neither side has
// anything left to send, so that the peer does not repeat its end of the stream to nobody. It
// discards what the peer still sends, closes after the peer has (of the two sides of a TCP
// connection only the one that closes last knows that all has arrived, RFC 9293 §3.6), and
// waits for the acknowledgement. The connection is closed in any case; an error says that the
// peer may not know: the context's, or what ended the connection while it was read.
func (c *Conn) Finish(ctx context.Context) error {
	defer func() { _ = c.Close() }()
	giveUp := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer giveUp()
	if _, err := io.Copy(io.Discard, c); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	}
	entry, over := waiter.NewChannelEntry(waiter.EventHUp)
	c.wq.EventRegister(&entry)
	defer c.wq.EventUnregister(&entry)
	_ = c.Close()
	if finished(c.ep) {
		return nil
	}
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.done:
		return net.ErrClosed
	}
}

// finished reports whether an endpoint has nothing to send any more, and the other side neither.
func finished(ep tcpip.Endpoint) bool {
	return ended(ep) || tcp.EndpointState(ep.State()) == tcp.StateTimeWait
}
