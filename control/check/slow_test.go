package check

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync"
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
		{"the server, over a tunnel that is slow too", 200 * time.Millisecond, 200 * time.Millisecond, 1900 * time.Millisecond, api.Warning, catalogue.APIServerSlow, "after 1.9s; the way there and back takes 200ms of it"},
		{"perhaps the server, over a tunnel that leaves no time to ask twice", 600 * time.Millisecond, 600 * time.Millisecond, 1700 * time.Millisecond, api.Unknown, catalogue.APIServerSlow, "after 1.7s; connecting to it took 600ms: it may be the way"},
		{"the server, also in TLS", 20 * time.Millisecond, 1500 * time.Millisecond, 1500 * time.Millisecond, api.Warning, catalogue.APIServerSlow, "20ms of it"},
		{"the tunnel", 1100 * time.Millisecond, 1100 * time.Millisecond, 1100 * time.Millisecond, api.Unknown, catalogue.APIServerSlow,
			"connecting to it took 1.1s: it may be the way there that is slow"},
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

// uncertain is a way of which each crossing takes so long and perhaps as long again, and which loses
// packets: each costs TCP its timer, which is three times the round trip and no less than 200 ms
// (RFC 6298).
type uncertain struct {
	base time.Duration
	loss float64
	mu   sync.Mutex
	dice *rand.Rand
}

// cross waits for a packet to cross the way, both there and back.
func (u *uncertain) cross() {
	u.mu.Lock()
	one := func() time.Duration { return u.base + time.Duration(u.dice.Float64()*float64(u.base)) }
	took, timer := one()+one(), max(200*time.Millisecond, 3*3*u.base)
	for u.dice.Float64() < u.loss {
		took, timer = took+timer, 2*timer
	}
	u.mu.Unlock()
	time.Sleep(took)
}

// Whatever a way does to single packets, a healthy server is not called slow, and one is that takes
// two seconds.
func TestAnUncertainWayIsNoSlowServer(t *testing.T) {
	for _, c := range []struct {
		name   string
		server time.Duration
		loss   float64
		is     api.Outcome
		least  int // of 100 that have this outcome
		never  api.Outcome
	}{
		{"healthy, jitter", 0, 0, api.OK, 100, api.Warning},
		{"healthy, jitter and loss", 0, 0.04, api.OK, 97, api.Warning},
		{"slow by 2 s, jitter", 2 * time.Second, 0, api.Warning, 75, api.OK},
		{"slow by 2 s, jitter and loss", 2 * time.Second, 0.04, api.Warning, 50, api.OK},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := &uncertain{base: 100 * time.Millisecond, loss: c.loss, dice: rand.New(rand.NewPCG(20, 308))}
				a := newAuthorities(t, catalogue.DefaultServerName)
				f, o := facts(), newOverlay(t)
				f.CA = a.serving.CertPEM()
				o.on(api.PortAPIServer, func(conn net.Conn) {
					conf := a.conf.Clone()
					conf.SessionTicketsDisabled = true
					secure(conf, says(body("ok")))(&delayed{Conn: conn, each: func(n int) time.Duration {
						if u.cross(); n == 1 {
							return c.server
						}
						return 0
					}})
				})
				dial := func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
					u.cross()
					return o.Dial(ctx, to)
				}
				got := map[api.Outcome]int{}
				for range asked {
					r := APIServer(t.Context(), dial, f)
					if r.Outcome == c.never {
						t.Fatalf("the verdict is %s: %s", r.Outcome, r.Verdict().Cause)
					}
					got[r.Outcome]++
				}
				t.Logf("of %d asked: %v", asked, got)
				if got[c.is]*100 < c.least*asked {
					t.Errorf("%d of %d are %s, want %d in 100", got[c.is], asked, c.is, c.least)
				}
			})
		})
	}
}
