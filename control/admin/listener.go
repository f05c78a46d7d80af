package admin

import (
	"errors"
	"log/slog"
	"net"
	"sync"
)

// maxConns bounds the open connections of one user. Each has a goroutine, a file descriptor, and an
// answer of up to some megabytes that the client may be slow to read.
const maxConns = 64

// listener identifies clients and bounds the connections of each.
type listener struct {
	net.Listener
	owner       identity
	credentials func(net.Conn) (identity, error)
	log         *slog.Logger

	mu   sync.Mutex
	open map[int]int // by user; -1 are those that could not be identified
}

// conn is a connection of an identified client.
type conn struct {
	net.Conn
	caller
	close func()
}

// Accept asks the kernel once per connection who it is. Those beyond maxConns are closed.
func (l *listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		who, err := l.credentials(raw)
		if errors.Is(err, errNoCredentials) {
			who, err = l.owner, nil // the file's mode is the only protection
		}
		uid := who.uid
		if err != nil {
			uid = -1
		}
		if !l.enter(uid) {
			l.log.Warn("admin connection refused: the user has too many", "uid", uid, "limit", maxConns)
			raw.Close()
			continue
		}
		return &conn{raw, caller{who, err}, sync.OnceFunc(func() { l.leave(uid) })}, nil
	}
}

func (l *listener) enter(uid int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[uid] >= maxConns {
		return false
	}
	l.open[uid]++
	return true
}

func (l *listener) leave(uid int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[uid]--; l.open[uid] == 0 {
		delete(l.open, uid)
	}
}

// Close also gives the connection's place back.
func (c *conn) Close() error {
	c.close()
	return c.Conn.Close()
}
