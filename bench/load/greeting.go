package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// greeting is the first byte of the load's connections, where others connect, too: a gateway
// checks now and then that what it offers answers.
const greeting = 'b'

// greetTimeout bounds the wait for it: the byte comes with the connection, but the machine
// may stand still.
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

// Greeted accepts the load's connections and drops others.
type Greeted struct{ net.Listener }

// Accept waits for the next connection that begins with the greeting.
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
