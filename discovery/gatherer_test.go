package discovery

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/discovery/stunwire"
)

var (
	start   = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	server1 = netip.MustParseAddrPort("192.0.2.1:3478")
	server2 = netip.MustParseAddrPort("192.0.2.2:3478")
	public1 = netip.MustParseAddrPort("198.51.100.7:51820")
	public2 = netip.MustParseAddrPort("198.51.100.7:40000")
	hostAt  = netip.MustParseAddrPort("10.1.2.3:51820")
)

// newGatherer returns a deterministic gatherer: transaction IDs count up, jitter is 0.
func newGatherer(t *testing.T, servers ...string) *gatherer {
	t.Helper()
	var n uint64
	g := &gatherer{
		newTx: func() (id stunwire.TxID) {
			n++
			binary.BigEndian.PutUint64(id[:], n)
			return id
		},
		jitter: func() time.Duration { return 0 },
	}
	for _, text := range servers {
		name, err := parseName(text)
		if err != nil {
			t.Fatal(err)
		}
		s := &server{name: name}
		s.retarget(start)
		g.servers = append(g.servers, s)
	}
	g.setPort(start, hostAt.Port())
	g.setHosts(start, []netip.Addr{hostAt.Addr()}, nil)
	return g
}

func candidatesOf(g *gatherer) []Candidate { return g.snapshot(nil).Candidates }

func success(t *testing.T, id stunwire.TxID, mapped netip.AddrPort) []byte {
	t.Helper()
	b, err := stunwire.BindingResponse(id, mapped)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// ask polls at now and returns the one request that must be due.
func ask(t *testing.T, g *gatherer, now time.Time) datagram {
	t.Helper()
	do, _ := g.poll(now)
	if len(do.send) != 1 {
		t.Fatalf("at %v: %d requests are due, want 1", now.Sub(start), len(do.send))
	}
	return do.send[0]
}

func TestARequestIsRepeatedAndGivenUp(t *testing.T) {
	g := newGatherer(t, "192.0.2.1:3478")
	var sent []time.Duration
	var tx []stunwire.TxID
	now := start
	for now.Sub(start) < giveUpAfter {
		do, next := g.poll(now)
		for _, d := range do.send {
			if d.to != server1 {
				t.Errorf("sent to %v, want %v", d.to, server1)
			}
			sent, tx = append(sent, now.Sub(start)), append(tx, d.tx)
		}
		now = next
	}
	want := []time.Duration{0, 300 * time.Millisecond, 900 * time.Millisecond, 2100 * time.Millisecond}
	if !slices.Equal(sent, want) {
		t.Errorf("sent at %v, want %v", sent, want)
	}
	if len(slices.Compact(tx)) != 1 {
		t.Errorf("transactions %v, want one", tx)
	}
	if p := g.pending(); len(p) != 1 {
		t.Errorf("before the end pending is %q, want the server", p)
	}
	g.poll(now)
	if now != start.Add(giveUpAfter) {
		t.Errorf("given up after %v, want %v", now.Sub(start), giveUpAfter)
	}
	s := g.snapshot(nil)
	if len(g.pending()) != 0 || len(s.Servers) != 1 || !strings.Contains(s.Servers[0].Err, "no answer") || s.Transactions.Timeout != 1 {
		t.Errorf("after the end: pending %q, %+v, want one failed server", g.pending(), s)
	}
	if d := ask(t, g, now.Add(retryAfter)); d.tx == tx[0] {
		t.Error("the retry uses the old transaction")
	}
}

func TestAnAnswerMakesACandidateAndIsRefreshed(t *testing.T) {
	g := newGatherer(t, "192.0.2.1:3478")
	d := ask(t, g, start)
	now := start.Add(40 * time.Millisecond)
	if !g.handle(now, success(t, d.tx, public1), server1) {
		t.Fatal("the answer is not taken")
	}
	s := g.snapshot(nil)
	want := []Candidate{{Addr: hostAt, Source: SourceHost}, {Addr: public1, Source: SourceSTUN}}
	if !slices.Equal(s.Candidates, want) {
		t.Errorf("candidates: got %v, want %v", s.Candidates, want)
	}
	if s.Servers[0].RTT != 40*time.Millisecond || s.Servers[0].Err != "" || s.Servers[0].Mapped != public1 {
		t.Errorf("server: got %+v", s.Servers[0])
	}
	if len(g.pending()) != 0 {
		t.Errorf("pending: %q", g.pending())
	}
	if do, _ := g.poll(now.Add(refreshAfter - time.Nanosecond)); len(do.send) != 0 {
		t.Error("refreshed too early")
	}
	if again := ask(t, g, now.Add(refreshAfter)); again.tx == d.tx {
		t.Error("the refresh uses the old transaction")
	}
}

func TestWhatIsNoAnswerIsIgnored(t *testing.T) {
	g := newGatherer(t, "192.0.2.1:3478", "192.0.2.2:3478")
	do, _ := g.poll(start)
	tx1, tx2 := do.send[0].tx, do.send[1].tx
	request := stunwire.BindingRequest(tx1)
	for name, c := range map[string]struct {
		packet []byte
		from   netip.AddrPort
	}{
		"another server's transaction": {success(t, tx2, public1), server1},
		"another address":              {success(t, tx1, public1), server2},
		"another port":                 {success(t, tx1, public1), netip.AddrPortFrom(server1.Addr(), 3479)},
		"an unknown transaction":       {success(t, stunwire.NewTxID(), public1), server1},
		"a request":                    {request, server1},
		"a trailing byte":              {append(success(t, tx1, public1), 0), server1},
		"nothing":                      {nil, server1},
	} {
		if g.handle(start, c.packet, c.from) {
			t.Errorf("%s was taken", name)
		}
	}
	if !g.handle(start, success(t, tx1, public1), netip.AddrPortFrom(netip.AddrFrom16(server1.Addr().As16()), server1.Port())) {
		t.Error("the answer from the server's address in IPv6 form was not taken")
	}
	if g.handle(start, success(t, tx1, public2), server1) {
		t.Error("a second answer to one transaction was taken")
	}
}

func TestServersThatDoNotHelpSayWhy(t *testing.T) {
	for _, c := range []struct {
		name  string
		event func(t *testing.T, g *gatherer, d datagram)
		want  string
		count func(Transactions) uint64
	}{
		{"error response", func(t *testing.T, g *gatherer, d datagram) {
			b, err := stunwire.BindingError(d.tx, 420, "\x1b[31mforeign")
			if err != nil {
				t.Fatal(err)
			}
			g.handle(start, b, d.to)
		}, "answers error 420", func(c Transactions) uint64 { return c.Error }},
		{"loopback as our address", func(t *testing.T, g *gatherer, d datagram) {
			g.handle(start, success(t, d.tx, netip.MustParseAddrPort("127.0.0.1:51820")), d.to)
		}, "127.0.0.1:51820: loopback", func(c Transactions) uint64 { return c.Error }},
		{"overlay address as ours", func(t *testing.T, g *gatherer, d datagram) {
			g.handle(start, success(t, d.tx, netip.MustParseAddrPort("[fd00::1]:51820")), d.to)
		}, "overlay address", func(c Transactions) uint64 { return c.Error }},
		{"send error", func(t *testing.T, g *gatherer, d datagram) {
			g.sendFailed(start, d, errors.New("network is unreachable"))
		}, "send: network is unreachable", func(c Transactions) uint64 { return c.Unsent }},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGatherer(t, "192.0.2.1:3478")
			c.event(t, g, ask(t, g, start))
			s := g.snapshot(nil)
			if !strings.Contains(s.Servers[0].Err, c.want) || strings.Contains(s.Servers[0].Err, "foreign") {
				t.Errorf("reason: got %q, want %q in it", s.Servers[0].Err, c.want)
			}
			if len(s.Problems) != 1 || s.Problems[0].Source != SourceSTUN {
				t.Errorf("problems: got %+v", s.Problems)
			}
			if c.count(s.Transactions) != 1 {
				t.Errorf("counts: got %+v", s.Transactions)
			}
			if len(g.pending()) != 0 {
				t.Errorf("gathering still waits for %q", g.pending())
			}
			if want := []Candidate{{Addr: hostAt, Source: SourceHost}}; !slices.Equal(s.Candidates, want) {
				t.Errorf("candidates: got %v, want %v", s.Candidates, want)
			}
		})
	}
}

func TestRetriesSlowDown(t *testing.T) {
	g := newGatherer(t, "192.0.2.1:3478")
	var waits []time.Duration
	now := start
	for range 6 {
		d := ask(t, g, now)
		g.sendFailed(now, d, errors.New("refused"))
		due := g.servers[0].targets[0].due
		waits, now = append(waits, due.Sub(now)), due
	}
	s := time.Second
	if want := []time.Duration{2 * s, 4 * s, 8 * s, 16 * s, 25 * s, 25 * s}; !slices.Equal(waits, want) {
		t.Errorf("waits: got %v, want %v", waits, want)
	}
	if n := len(g.events); n != 1 {
		t.Errorf("%d events, want one for the first failure", n)
	}
}

func TestAMappingThatNobodyConfirmsIsDropped(t *testing.T) {
	g := newGatherer(t, "192.0.2.1:3478")
	d := ask(t, g, start)
	g.handle(start, success(t, d.tx, public1), server1)
	for now := start; now.Before(start.Add(staleAfter)); {
		if c := candidatesOf(g); len(c) != 2 {
			t.Fatalf("after %v the candidates are %v", now.Sub(start), c)
		}
		_, now = g.poll(now)
		if now.After(start.Add(staleAfter)) {
			t.Fatalf("the next poll is at %v, after the mapping ends", now.Sub(start))
		}
	}
	g.poll(start.Add(staleAfter))
	if c := candidatesOf(g); len(c) != 1 || c[0].Source != SourceHost {
		t.Errorf("after %v the candidates are %v, want the host's alone", staleAfter, c)
	}
}

func TestAChangedMappingHasTheOthersAskedAtOnce(t *testing.T) {
	g := newGatherer(t, "192.0.2.1:3478", "192.0.2.2:3478")
	do, _ := g.poll(start)
	for _, d := range do.send {
		g.handle(start, success(t, d.tx, public1), d.to)
	}
	if got := g.snapshot(nil).NAT.Mapping; got != MappingEndpointIndependent {
		t.Fatalf("mapping: got %s, want %s", got, MappingEndpointIndependent)
	}
	now := start.Add(10 * time.Second)
	g.servers[0].targets[0].askNow(now)
	d := ask(t, g, now)
	g.handle(now, success(t, d.tx, public2), d.to)
	// The other server's old answer must not make the NAT look endpoint-dependent.
	if got := g.snapshot(nil).NAT.Mapping; got != BehaviourUnknown {
		t.Errorf("mapping with one fresh answer: got %s, want %s", got, BehaviourUnknown)
	}
	d = ask(t, g, now)
	if d.to != server2 {
		t.Fatalf("asked %v, want the other server", d.to)
	}
	g.handle(now, success(t, d.tx, public2), d.to)
	if got := g.snapshot(nil).NAT.Mapping; got != MappingEndpointIndependent {
		t.Errorf("mapping with two fresh answers: got %s, want %s", got, MappingEndpointIndependent)
	}
	if do, _ := g.poll(now); len(do.send) != 0 {
		t.Error("the second change asked the first server again: this would go on for ever")
	}
	if c := candidatesOf(g); slices.ContainsFunc(c, func(c Candidate) bool { return c.Addr == public1 }) {
		t.Errorf("the old address is still among %v", c)
	}
}

func TestANewPortVoidsWhatWasLearnt(t *testing.T) {
	g := newGatherer(t, "192.0.2.1:3478")
	d := ask(t, g, start)
	g.handle(start, success(t, d.tx, public1), server1)
	g.setPort(start, 4000)
	if c := candidatesOf(g); len(c) != 1 || c[0].Addr.Port() != 4000 {
		t.Errorf("candidates: got %v, want the host's with port 4000", c)
	}
	if again := ask(t, g, start); again.tx == d.tx {
		t.Error("the old transaction goes on")
	}
}

func TestChangedInterfacesAskAgain(t *testing.T) {
	g := newGatherer(t, "192.0.2.1:3478")
	d := ask(t, g, start)
	g.handle(start, success(t, d.tx, public1), server1)
	g.setHosts(start, []netip.Addr{hostAt.Addr()}, nil)
	if do, _ := g.poll(start); len(do.send) != 0 {
		t.Error("unchanged interfaces caused a request")
	}
	g.setHosts(start, nil, errors.New("no netlink"))
	if s := g.snapshot(nil); len(s.Candidates) != 2 || len(s.Problems) != 1 || s.Problems[0].Err != "no netlink" {
		t.Errorf("after an error: got %+v, want the old candidates and the reason", s)
	}
	g.setHosts(start, []netip.Addr{netip.MustParseAddr("10.9.9.9")}, nil)
	ask(t, g, start)
}

func TestNamesAreResolvedAgain(t *testing.T) {
	g := newGatherer(t, "stun.example.net:3478")
	n, err := parseName("gw.example.net:40000")
	if err != nil {
		t.Fatal(err)
	}
	g.advertised = append(g.advertised, n)
	do, _ := g.poll(start)
	if want := []string{"gw.example.net", "stun.example.net"}; !slices.Equal(do.resolve, want) {
		t.Fatalf("to resolve: got %q, want %q", do.resolve, want)
	}
	if do, _ := g.poll(start); len(do.resolve) != 0 {
		t.Errorf("resolved twice at once: %q", do.resolve)
	}
	a, b := netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("203.0.113.2")
	g.resolved(start, "gw.example.net", []netip.Addr{b, a, b}, nil)
	g.resolved(start, "stun.example.net", nil, errors.New("no such host"))
	s := g.snapshot(nil)
	want := []Candidate{{Addr: netip.AddrPortFrom(a, 40000), Source: SourceAdvertised}, {Addr: netip.AddrPortFrom(b, 40000), Source: SourceAdvertised}, {Addr: hostAt, Source: SourceHost}}
	if !slices.Equal(s.Candidates, want) {
		t.Errorf("candidates: got %v, want %v", s.Candidates, want)
	}
	if len(s.Servers) != 1 || !strings.Contains(s.Servers[0].Err, "no such host") || len(g.pending()) != 0 {
		t.Errorf("server: got %+v, pending %q", s.Servers, g.pending())
	}
	later := start.Add(resolveAfter)
	if do, _ := g.poll(later); len(do.resolve) != 2 {
		t.Errorf("after %v to resolve: %q, want both", resolveAfter, do.resolve)
	}
	g.resolved(later, "gw.example.net", nil, errors.New("server failure"))
	if s := g.snapshot(nil); !slices.Equal(s.Candidates, want) || !strings.Contains(s.Problems[0].Err, "server failure") {
		t.Errorf("after a failure: got %+v, want the old addresses and the reason", s)
	}
}

func TestRotatingDNSKeepsTheServer(t *testing.T) {
	g := newGatherer(t, "stun.example.net:3478")
	g.poll(start)
	other, v6 := netip.MustParseAddr("192.0.2.9"), netip.MustParseAddr("2001:db8::1")
	g.resolved(start, "stun.example.net", []netip.Addr{server1.Addr(), v6}, nil)
	do, _ := g.poll(start)
	if len(do.send) != 2 || do.send[0].to != server1 || do.send[1].to.Addr() != v6 {
		t.Fatalf("asked %v, want one address of each family", do.send)
	}
	g.handle(start, success(t, do.send[0].tx, public1), server1)
	later := start.Add(resolveAfter)
	for _, c := range []struct {
		addrs []netip.Addr
		want  netip.Addr
	}{
		{[]netip.Addr{other, server1.Addr()}, server1.Addr()},
		{[]netip.Addr{other}, other},
	} {
		g.poll(later)
		g.resolved(later, "stun.example.net", c.addrs, nil)
		if got := g.servers[0].targets; len(got) != 1 || got[0].addr.Addr() != c.want {
			t.Errorf("with %v: %d targets, first %v, want %v alone", c.addrs, len(got), got[0].addr, c.want)
		}
		later = later.Add(resolveAfter)
	}
}
