package netstack

import (
	"context"
	"io"
	"net"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// Finish is [Conn.Close] for a stack that is about to go away: it returns once neither side has
// anything left to send, so that the peer does not retransmit its FIN to nobody. It discards what
// the peer still sends, closes after the peer (only the side that closes last knows that everything
// has arrived, RFC 9293 §3.6), and waits for the acknowledgement. The connection is closed in any
// case. An error means that the peer may not know: it is the context's, or the one that ended the
// connection while it was read.
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

// finished reports whether neither side has anything left to send.
func finished(ep tcpip.Endpoint) bool {
	return ended(ep) || tcp.EndpointState(ep.State()) == tcp.StateTimeWait
}
