package admin

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/testenv/patience"
)

// A user with many connections, which say nothing, must not take the places of others.
func TestConnectionsOfAUserAreBounded(t *testing.T) {
	own := ownIdentity()
	var uid atomic.Int64
	uid.Store(int64(own.uid) + 1)
	client := serve(t, &fake{}, func(net.Conn) (identity, error) {
		return identity{uid: int(uid.Load()), gid: own.gid}, nil
	})
	var open []net.Conn
	dial := func() net.Conn {
		c, err := new(net.Dialer).DialContext(t.Context(), "unix", client.socket)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	for range maxConns {
		open = append(open, dial())
	}
	for range 3 { // the server closes them
		c := dial()
		_ = c.SetReadDeadline(time.Now().Add(patience.Left()))
		if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("one more connection stays")
		}
	}
	if _, err := client.Status(within(t)); err == nil {
		t.Error("one more request is answered")
	} else {
		t.Log(err)
	}
	uid.Store(int64(own.uid))
	if _, err := client.Status(within(t)); err != nil {
		t.Errorf("another user gets no answer: %v", err)
	}
	uid.Store(int64(own.uid) + 1)
	for _, c := range open {
		c.Close()
	}
	for ctx := within(t); ; { // the server notices in its own time
		if _, err := client.Status(ctx); err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatal("the places are not given back")
		}
	}
}
