package check

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
)

// delayed lets each write towards the client wait, as a way or a server does that is slow.
type delayed struct {
	net.Conn
	each func(n int) time.Duration
	n    int
}

func (d *delayed) Write(p []byte) (int, error) {
	time.Sleep(d.each(d.n))
	d.n++
	return d.Conn.Write(p)
}

// A server is called slow for what is its own part. What the tunnel takes is seen in
// connecting, and then nobody is blamed.
func TestWhoIsSlow(t *testing.T) {
	for _, c := range []struct {
		name    string
		tcp     time.Duration // what connecting takes
		tls     time.Duration // what the server's first flight of TLS takes
		http    time.Duration // what the answer takes
		outcome api.Outcome
		code    catalogue.Code
		cause   string
	}{
		{"nobody", 20 * time.Millisecond, 20 * time.Millisecond, 900 * time.Millisecond, api.OK, "", ""},
		{"the server", 20 * time.Millisecond, 20 * time.Millisecond, 2 * time.Second, api.Warning, catalogue.APIServerSlow,
			"the API server of cloud at [fd12::1]:6443 inside the tunnel answered /livez after 2s; the way there and back takes 20ms of it"},
		{"the server, over a tunnel that is slow too", 600 * time.Millisecond, 600 * time.Millisecond, 1700 * time.Millisecond, api.Warning, catalogue.APIServerSlow, "after 1.7s; the way there and back takes 600ms of it"},
		{"the server, also in TLS", 20 * time.Millisecond, 1500 * time.Millisecond, 1500 * time.Millisecond, api.Warning, catalogue.APIServerSlow, "20ms of it"},
		{"the tunnel", 1100 * time.Millisecond, 1100 * time.Millisecond, 1100 * time.Millisecond, api.Unknown, catalogue.APIServerSlow,
			"connecting to it took 1.1s already: it may be the way there that is slow"},
		{"one of the two", 1500 * time.Millisecond, 600 * time.Millisecond, 1500 * time.Millisecond, api.Unknown, catalogue.APIServerSlow, "it may be the way"},
		{"nobody that answers at all", 20 * time.Millisecond, 20 * time.Millisecond, 6 * time.Second, api.Error, catalogue.APIServerTimeout, "4s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAuthorities(t, catalogue.DefaultServerName)
				f, o := facts(), newOverlay(t)
				f.CA = a.serving.CertPEM()
				o.on(api.PortAPIServer, func(conn net.Conn) {
					conf := a.conf.Clone()
					conf.SessionTicketsDisabled = true
					secure(conf, says(body("ok")))(&delayed{Conn: conn, each: func(n int) time.Duration {
						switch n {
						case 0:
							return c.tls
						case 1:
							return c.http
						}
						return 0
					}})
				})
				dial := func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
					time.Sleep(c.tcp)
					return o.Dial(ctx, to)
				}
				r := APIServer(t.Context(), dial, f)
				if v := r.Verdict(); v.Verdict != c.outcome || v.Code != string(c.code) || !strings.Contains(v.Cause, c.cause) {
					t.Errorf("got %s %s: %s; want %s %s: %s", v.Verdict, v.Code, v.Cause, c.outcome, c.code, c.cause)
				}
			})
		})
	}
}
