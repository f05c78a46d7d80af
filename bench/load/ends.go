package load

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// Ends are the two sides of a subject: what is dialled here is accepted there.
type Ends struct {
	Listener net.Listener
	Dial     func(context.Context) (net.Conn, error)
	// ListenPacket opens the UDP socket of the accepting side, once, and DialPacket one
	// of the dialling side that is connected to it. Both are nil for a subject that
	// carries no UDP.
	ListenPacket func() (net.PacketConn, error)
	DialPacket   func(context.Context) (net.Conn, error)
	// Close ends the subject after its last connection. It may be nil.
	Close func() error
	// Began is when bringing the ends up began. [Program.Main] sets it.
	Began time.Time
}

// Run fills the ends with what spec.Load names, measures what arrives, and closes them.
func Run(ctx context.Context, spec Spec, ends Ends) (r Result, err error) {
	defer func() {
		_ = ends.Listener.Close() // Again, when the load has closed it.
		if ends.Close != nil {
			err = errors.Join(err, ends.Close())
		}
	}()
	switch spec.Load {
	case "", LoadStreams:
		return bulk(ctx, spec, ends)
	}
	return Result{}, fmt.Errorf("no load %q", spec.Load)
}
