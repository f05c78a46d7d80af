package forward

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/postern-dev/postern/control/catalogue"
)

// keepAlive detects vanished hosts of TCP connections: it probes after 30 s of silence, then every
// 15 s, four times, so within at most 90 s.
func keepAlive() net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 15 * time.Second, Count: 4}
}

// DialUpstream dials host:port by TCP in the network of this machine.
func DialUpstream(ctx context.Context, address string) (Conn, error) {
	d := net.Dialer{KeepAliveConfig: keepAlive()}
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		c.Close()
		return nil, fmt.Errorf("dial %s: got %T, which cannot be half-closed", address, c)
	}
	return tcp, nil
}

// upstreamCode returns the code for an upstream that could not be dialled.
func upstreamCode(err error) catalogue.Code {
	var dns *net.DNSError
	var ne net.Error
	switch {
	case catalogue.Exhausted(err):
		return catalogue.SocketsUsedUp
	case errors.As(err, &dns):
		return catalogue.UpstreamName
	case errors.Is(err, syscall.ECONNREFUSED):
		return catalogue.UpstreamRefused
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded),
		errors.As(err, &ne) && ne.Timeout():
		return catalogue.UpstreamTimeout
	}
	return catalogue.UpstreamUnreachable
}
