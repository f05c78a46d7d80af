package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// greeting is the first byte of the load's connections, for listeners to which others connect,
// too: a gateway checks from time to time that its services answer.
const greeting = 'b'

// greetTimeout bounds the wait for the greeting. It is sent with the connection, but the machine
// may be busy.
const greetTimeout = 20 * time.Second

// DialGreeting connects to a TCP address and sends the greeting.
func DialGreeting(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if _, err := c.Write([]byte{greeting}); err != nil {
		return nil, errors.Join(fmt.Errorf("greet: %w", err), c.Close())
	}
	return c, nil
}

// Greeted only accepts the load's connections and closes others.
type Greeted struct{ net.Listener }

// Accept returns the next connection that begins with the greeting.
func (g Greeted) Accept() (net.Conn, error) {
	for {
		c, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if greeted(c) {
			return c, nil
		}
		_ = c.Close()
	}
}

func greeted(c net.Conn) bool {
	if err := c.SetReadDeadline(time.Now().Add(greetTimeout)); err != nil {
		return false
	}
	first := make([]byte, 1)
	if _, err := io.ReadFull(c, first); err != nil || first[0] != greeting {
		return false
	}
	return c.SetReadDeadline(time.Time{}) == nil
}
