package check

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509/pkix"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
	"github.com/postern-dev/postern/testenv/pki"
)

// overlay is a tunnel without packets: a function serves each port on one end of a pipe.
type overlay struct {
	wg sync.WaitGroup

	mu    sync.Mutex
	ports map[uint16]func(net.Conn)
	ping  func() error
	dials map[uint16]int
	echos int
}

var peerAddr = netip.MustParseAddr("fd12::1")

func newOverlay(t *testing.T) *overlay {
	o := &overlay{ports: make(map[uint16]func(net.Conn)), dials: make(map[uint16]int)}
	t.Cleanup(o.wg.Wait)
	return o
}

// on makes serve answer connections to a port; nil removes the port.
func (o *overlay) on(port uint16, serve func(net.Conn)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ports[port] = serve
}

// pings makes f answer pings.
func (o *overlay) pings(f func() error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ping = f
}

func (o *overlay) dialled(port uint16) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.dials[port]
}

// pinged returns the number of pings so far.
func (o *overlay) pinged() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.echos
}

func (o *overlay) Dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	o.mu.Lock()
	serve := o.ports[to.Port()]
	o.dials[to.Port()]++
	o.mu.Unlock()
	if to.Addr() != peerAddr || serve == nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	here, there := net.Pipe()
	o.wg.Add(1)
	go func() {
		defer o.wg.Done()
		b := newBuffered(there)
		defer b.Close()
		serve(b)
	}()
	return here, nil
}

func (o *overlay) Ping(ctx context.Context, to netip.Addr, _ int) (time.Duration, error) {
	o.mu.Lock()
	ping := o.ping
	o.echos++
	o.mu.Unlock()
	if ping == nil {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	return 3 * time.Millisecond, ping()
}

// buffered is a pipe's end that, like a socket, accepts writes without waiting for the reader: a
// TLS server sends its alert while the client sends its request.
type buffered struct {
	net.Conn
	queue chan []byte
	done  chan struct{}
	once  sync.Once
}

func newBuffered(c net.Conn) *buffered {
	b := &buffered{Conn: c, queue: make(chan []byte, 64), done: make(chan struct{})}
	go func() {
		defer close(b.done)
		for p := range b.queue {
			if _, err := c.Write(p); err != nil {
				break
			}
		}
		c.Close()
	}()
	return b
}

func (b *buffered) Write(p []byte) (int, error) {
	select {
	case b.queue <- append([]byte(nil), p...):
		return len(p), nil
	case <-b.done:
		return 0, io.ErrClosedPipe
	}
}

// SetWriteDeadline does nothing: crypto/tls expires it after the closing alert, which
// must not hit what is still queued.
func (b *buffered) SetWriteDeadline(time.Time) error { return nil }

// Close lets the reader read everything that was written.
func (b *buffered) Close() error {
	b.once.Do(func() { close(b.queue) })
	<-b.done
	return nil
}

// silent accepts and sends nothing.
func silent(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

// says reads one request and answers with the literal text.
func says(text string) func(net.Conn) {
	return func(c net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
			return
		}
		_, _ = io.WriteString(c, text)
	}
}

// status returns an HTTP answer without a body.
func status(line string) string { return "HTTP/1.1 " + line + "\r\nContent-Length: 0\r\n\r\n" }

// body returns an HTTP answer with a body.
func body(b string) string { return "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + b }

// secure serves TLS and then the inner function.
func secure(conf *tls.Config, inner func(net.Conn)) func(net.Conn) {
	return func(c net.Conn) {
		t := tls.Server(c, conf)
		if t.HandshakeContext(context.Background()) != nil {
			_, _ = io.Copy(io.Discard, c) // until the client has read the alert
			return
		}
		inner(t)
		_ = t.CloseWrite()
	}
}

// authorities are a server's certificate and a client's, each with its authority.
type authorities struct {
	serving, clients *pki.CA
	conf             *tls.Config // of a server that asks for a client certificate
	identity         *tls.Certificate
}

func newAuthorities(t *testing.T, names ...string) authorities {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	serving, err := pki.NewCA("cluster-ca")
	must(err)
	clients, err := pki.NewCA("peers-ca")
	must(err)
	pair, err := serving.Server(names...)
	must(err)
	cert, err := pair.TLS()
	must(err)
	pair, err = clients.Client(pkix.Name{CommonName: "postern:peer:edge"})
	must(err)
	id, err := pair.TLS()
	must(err)
	return authorities{serving: serving, clients: clients, identity: &id,
		conf: &tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: clients.Pool(),
			ClientAuth: tls.VerifyClientCertIfGiven, MinVersion: tls.VersionTLS12}}
}

// facts returns the facts of a healthy peer.
func facts() Facts {
	return Facts{Name: "cloud", Address: peerAddr, Since: time.Now().Add(-time.Hour),
		LastHandshake: time.Now().Add(-time.Minute), Endpoints: []string{"198.51.100.7:51820"},
		Offers: []string{api.ServiceAuth, api.ServiceAPIServer}}
}

// checkVerdict compares outcome, code and stage.
func checkVerdict(t *testing.T, r verdict.Finding, o api.Outcome, c catalogue.Code, stage string) {
	t.Helper()
	v := r.Verdict()
	if v.Verdict != o || v.Code != string(c) || v.Stage != stage {
		t.Errorf("got %s %s at %q (%s), want %s %s at %q", v.Verdict, v.Code, v.Stage, v.Cause, o, c, stage)
	}
	if v.CheckedAt == nil || v.Via != verdict.ViaInBand {
		t.Errorf("verdict lacks time or way: %+v", v)
	}
	if (v.Cause == "" || v.Fix == "") != (o == api.OK) {
		t.Errorf("%s verdict has cause %q and fix %q", o, v.Cause, v.Fix)
	}
}

var errLost = errors.New("no echo reply")
