package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/control/api"
)

// crowded is a gateway of a thousand peers.
type crowded struct{ fake }

func (c *crowded) Status(context.Context) (api.Status, error) {
	s := api.Status{Kind: "Status"}
	for i := range 1000 {
		s.Peers = append(s.Peers, api.PeerStatus{Name: fmt.Sprintf("edge-%d", i), State: api.StateConnected, RxBytes: uint64(i) * 7919})
	}
	return s, c.called("status")
}

// counted counts what is read from a connection.
type counted struct {
	net.Conn
	read *atomic.Int64
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read.Add(int64(n))
	return n, err
}

func TestAnswersAreCompressedForWhoIsFarAway(t *testing.T) {
	b := &crowded{}
	near := serve(t, b, peerCredentials)
	want, err := near.Status(within(t))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	dial := func(read *atomic.Int64) func(context.Context, string, string) (net.Conn, error) {
		return func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, "unix", near.socket)
			return counted{conn, read}, err
		}
	}
	var fromAfar, fromHere atomic.Int64
	far := NewClientVia("far", func(ctx context.Context) (net.Conn, error) { return dial(&fromAfar)(ctx, "", "") })
	defer far.Close()
	got, err := far.Status(within(t))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("what arrives from afar differs, or: %v", err)
	}
	if n := fromAfar.Load(); n > int64(len(plain))/5 {
		t.Errorf("%d bytes of %d crossed", n, len(plain))
	}
	near.http.Transport.(*http.Transport).DialContext = dial(&fromHere)
	if _, err := near.Status(within(t)); err != nil {
		t.Error(err)
	}
	if n := fromHere.Load(); n < int64(len(plain)) {
		t.Errorf("a command beside the gateway was sent %d bytes of %d: it was compressed", n, len(plain))
	}
}

// dribble answers a request in parts, with a pause before each.
func dribble(t *testing.T, pause time.Duration, parts ...string) *Client {
	t.Helper()
	return NewClientVia("s", func(context.Context) (net.Conn, error) {
		here, there := net.Pipe()
		t.Cleanup(func() { _ = there.Close() })
		go func() {
			if _, err := http.ReadRequest(bufio.NewReader(there)); err != nil {
				t.Error(err)
			}
			for _, p := range parts {
				time.Sleep(pause)
				if _, err := there.Write([]byte(p)); err != nil {
					return // given up
				}
			}
		}()
		return here, nil
	})
}

// An answer that comes slowly is not silence, however long it takes in all.
func TestASlowAnswerArrives(t *testing.T) {
	const name = "a-long-name-that-comes-letter-by-letter"
	body := `{"gateway":{"name":"` + name + `"}}`
	parts := append([]string{fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", len(body))}, strings.Split(body, "")...)
	synctest.Test(t, func(t *testing.T) {
		c := dribble(t, answerTime*3/4, parts...)
		defer c.Close()
		if s, err := c.Status(t.Context()); err != nil || s.Gateway.Name != name {
			t.Errorf("got %q, %v", s.Gateway.Name, err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		c := dribble(t, answerTime*3/4, parts[:4]...)
		defer c.Close()
		start := time.Now()
		if _, err := c.Status(t.Context()); !errors.Is(err, ErrSilent) {
			t.Errorf("one that ends in the middle: got %v, want ErrSilent", err)
		}
		if took := time.Since(start); took != answerTime*3/4*4+answerTime {
			t.Errorf("given up after %s", took)
		}
	})
}
