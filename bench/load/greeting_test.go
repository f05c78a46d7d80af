package load

import (
	"io"
	"net"
	"testing"
)

// The load does not see the connections of a gateway that checks its upstream.
func TestOnlyTheLoadsConnectionsAreAccepted(t *testing.T) {
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	at := l.Addr().String()
	for _, says := range []string{"", "GET / HTTP/1.1\r\n\r\n"} {
		var d net.Dialer
		c, err := d.DialContext(t.Context(), "tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, says); err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	mine, err := DialGreeting(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Close()
	if _, err := io.WriteString(mine, "load"); err != nil {
		t.Fatal(err)
	}
	c, err := Greeted{l}.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got := make([]byte, 4)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "load" {
		t.Errorf("got %q and %v, want the load's data after the greeting", got, err)
	}
}
