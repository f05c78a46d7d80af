package admin

import (
	"errors"
	"net"
)

// maxConns bounds the open connections of one user. Each has a goroutine, a file descriptor, and an
// answer of up to some megabytes that the client may be slow to read.
const maxConns = 64

// listener identifies clients.
type listener struct {
	net.Listener
	owner       identity
	credentials func(net.Conn) (identity, error)
}

// conn is a connection of an identified client.
type conn struct {
	net.Conn
	caller
}

// Accept asks the kernel once per connection who it is.
func (l *listener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	who, err := l.credentials(raw)
	if errors.Is(err, errNoCredentials) {
		who, err = l.owner, nil // the file's mode is the only protection
	}
	return &conn{raw, caller{who, err}}, nil
}

// uidOf returns the user of a connection; -1 stands for all that could not be identified.
func uidOf(c net.Conn) int {
	if who := c.(*conn).caller; who.err == nil {
		return who.identity.uid
	}
	return -1
}
