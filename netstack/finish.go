package netstack

import (
	"context"
	"io"

	"gvisor.dev/gvisor/pkg/waiter"
)

// Finish is [Conn.Close] for a stack that goes away next: it returns once neither side has
// anything left to send, so that the peer does not repeat its end of the stream to nobody. It
// discards what the peer still sends, closes after the peer has (of the two sides of a TCP
// connection only the one that closes last knows that all has arrived, RFC 9293 §3.6), and
// waits for the acknowledgement. When ctx ends before, it closes and gives the context's
// error; what breaks the connection meanwhile is returned as [Conn.Read] has it.
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
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.done:
		return nil
	}
}
