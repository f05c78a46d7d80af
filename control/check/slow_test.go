package check

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
)

// delayed delays each write towards the client, like a slow path or server.
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

// slow returns a server that answers with a delay before each write.
func (a authorities) slow(each func(n int) time.Duration) func(net.Conn) {
	return func(conn net.Conn) {
		conf := a.conf.Clone()
		conf.SessionTicketsDisabled = true
		secure(conf, says(body("ok")))(&delayed{Conn: conn, each: each})
	}
}

// A server is only called slow for its own share. The tunnel's share shows in connecting; then
// nobody is blamed.
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
			"the API server of cloud at [fd12::1]:6443 inside the tunnel answered /livez after 2s; the round trip accounts for 20ms of it"},
		{"the server, over a tunnel that is slow too", 200 * time.Millisecond, 200 * time.Millisecond, 1900 * time.Millisecond, api.Warning, catalogue.APIServerSlow, "after 1.9s; the round trip accounts for 200ms of it"},
		{"perhaps the server, over a tunnel that leaves no time to ask twice", 600 * time.Millisecond, 600 * time.Millisecond, 1700 * time.Millisecond, api.Unknown, catalogue.APIServerSlow, "after 1.7s; connecting to it took 600ms: the path there may be"},
		{"the server, also in TLS", 20 * time.Millisecond, 1500 * time.Millisecond, 1500 * time.Millisecond, api.Warning, catalogue.APIServerSlow, "20ms of it"},
		{"the tunnel", 1100 * time.Millisecond, 1100 * time.Millisecond, 1100 * time.Millisecond, api.Unknown, catalogue.APIServerSlow,
			"connecting to it took 1.1s: the path there may be slow"},
		{"one of the two", 1500 * time.Millisecond, 600 * time.Millisecond, 1500 * time.Millisecond, api.Unknown, catalogue.APIServerSlow, "the path there may be"},
		{"nobody that answers at all", 20 * time.Millisecond, 20 * time.Millisecond, 6 * time.Second, api.Error, catalogue.APIServerTimeout, "4s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAuthorities(t, catalogue.DefaultServerName)
				f, o := facts(), newOverlay(t)
				f.CA = a.serving.CertPEM()
				o.on(api.PortAPIServer, a.slow(func(n int) time.Duration {
					switch n {
					case 0:
						return c.tls
					case 1:
						return c.http
					}
					return 0
				}))
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

// uncertain is a path with a round trip, jitter, and a share of lost round trips.
type uncertain struct {
	base, jitter time.Duration
	loss         float64
	mu           sync.Mutex
	dice         *rand.Rand
}

// roll returns the duration of a round trip, and whether it is lost.
func (u *uncertain) roll() (took time.Duration, lost bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return 2*u.base + time.Duration((u.dice.Float64()+u.dice.Float64())*float64(u.jitter)), u.dice.Float64() < u.loss
}

// cross waits for a round trip of TCP. Each loss costs its timer, which is three times the round
// trip and at least 200 ms, and doubles (RFC 6298).
func (u *uncertain) cross() {
	took, lost := u.roll()
	for timer := max(200*time.Millisecond, 3*(2*u.base+u.jitter)); lost; timer *= 2 {
		_, lost = u.roll()
		took += timer
	}
	time.Sleep(took)
}

// echo returns the result of a ping.
func (u *uncertain) echo() error {
	took, lost := u.roll()
	if lost {
		time.Sleep(lossWait)
		return errLost
	}
	time.Sleep(took)
	return nil
}

// over delays each write towards the client by the path.
func (u *uncertain) over(serve func(net.Conn)) func(net.Conn) {
	return func(c net.Conn) {
		serve(&delayed{Conn: c, each: func(int) time.Duration { u.cross(); return 0 }})
	}
}

// dialled crosses the path before each connection.
func (u *uncertain) dialled(dial DialFunc) DialFunc {
	return func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
		u.cross()
		return dial(ctx, to)
	}
}

// Whatever a path does to single packets, a healthy server is not called slow, and one that takes
// two seconds is.
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
				u := &uncertain{base: 100 * time.Millisecond, jitter: 100 * time.Millisecond, loss: c.loss, dice: rand.New(rand.NewPCG(20, 308))}
				a := newAuthorities(t, catalogue.DefaultServerName)
				f, o := facts(), newOverlay(t)
				f.CA = a.serving.CertPEM()
				o.on(api.PortAPIServer, a.slow(func(n int) time.Duration {
					if u.cross(); n == 1 {
						return c.server
					}
					return 0
				}))
				dial := u.dialled(o.Dial)
				got := map[api.Outcome]int{}
				for range asked {
					r := APIServer(t.Context(), dial, f)
					if got[r.Outcome]++; r.Outcome == c.never && c.loss == 0 {
						t.Fatalf("the verdict is %s: %s", r.Outcome, r.Verdict().Cause)
					}
				}
				if got[c.never]*200 > asked { // two packets in a row may be lost twice
					t.Errorf("%d of %d are %s", got[c.never], asked, c.never)
				}
				t.Logf("of %d asked: %v", asked, got)
				if got[c.is]*100 < c.least*asked {
					t.Errorf("%d of %d are %s, want %d in 100", got[c.is], asked, c.is, c.least)
				}
			})
		})
	}
}

// healthyVariable sets for how many hours of virtual time healthy pairs are checked, instead of
// ten; see `make test-healthy`.
const healthyVariable = "POSTERN_HEALTHY_HOURS"

// The checks find no fault in a healthy pair over a path that loses 2 % each way, with 100 ms of
// jitter, except the loss itself when it is measured. Each pair runs for ten hours, because its API
// server's certificate is valid for a day.
func TestAHealthyPairOnABadWayHasNoFault(t *testing.T) {
	const hours = 10
	n, err := strconv.Atoi(os.Getenv(healthyVariable))
	if err != nil {
		n = hours
	}
	for pair := range max(1, n/hours) {
		synctest.Test(t, func(t *testing.T) { staysWell(t, uint64(pair), hours*time.Hour) })
	}
}

func staysWell(t *testing.T, seed uint64, healthyFor time.Duration) {
	r := newReporting(t)
	u := &uncertain{base: 20 * time.Millisecond, jitter: 100 * time.Millisecond, loss: 0.04, dice: rand.New(rand.NewPCG(20, seed))}
	r.overlay.pings(u.echo)
	for _, port := range []uint16{api.PortAuth, api.PortAPIServer} {
		r.overlay.on(port, u.over(r.overlay.ports[port]))
	}
	r.opts.Dial = u.dialled(r.overlay.Dial)
	r.SetPeers([]string{"cloud"})
	looks, wrong := 0, map[string]int{}
	for begin := time.Now(); time.Since(begin) < healthyFor; looks++ {
		time.Sleep(r.opts.FullInterval / 4)
		r.set(func(f *Facts) { f.LastHandshake = time.Now().Add(-time.Minute) })
		for _, fault := range faultsOf(r.report(t, "", looks%100 == 0)) {
			if !strings.HasSuffix(fault, string(catalogue.PacketsLost)) {
				wrong[fault]++
			}
		}
	}
	if len(wrong) > 0 {
		t.Errorf("pair %d: of %d reports, these are false: %v", seed, looks, wrong)
	}
}
