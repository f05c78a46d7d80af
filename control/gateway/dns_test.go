package gateway_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/gateway"
	"github.com/postern-dev/postern/testenv/lab"
	"github.com/postern-dev/postern/tunnel/peer"
)

// nameServer answers for example.com at a port of the loopback interface.
type nameServer struct {
	addr netip.AddrPort

	mu      sync.Mutex
	records []dns.RR
	asked   int
}

func newNameServer(t *testing.T) *nameServer {
	t.Helper()
	conn, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &nameServer{addr: netip.MustParseAddrPort(conn.LocalAddr().String())}
	started := make(chan struct{})
	server := &dns.Server{PacketConn: conn, Handler: s, NotifyStartedFunc: func() { close(started) }}
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.ActivateAndServe(); err != nil {
			t.Errorf("serve DNS: %v", err)
		}
	})
	<-started
	t.Cleanup(func() {
		if err := server.Shutdown(); err != nil {
			t.Errorf("stop DNS: %v", err)
		}
		serving.Wait()
	})
	return s
}

// announce has a gateway be in the zone, with a key, at addresses in their order.
func (s *nameServer) announce(t *testing.T, name string, k peer.PublicKey, addrs ...string) {
	t.Helper()
	lines := fmt.Sprintf("_postern._udp PTR %s._postern._udp\n%s._postern._udp TXT \"v=1\" \"pk=%s\"\n", name, name, k)
	for n, a := range addrs {
		at := netip.MustParseAddrPort(a)
		lines += fmt.Sprintf("%s._postern._udp SRV %d 0 %d h%d\nh%d A %s\n", name, n, at.Port(), n, n, at.Addr())
	}
	var records []dns.RR
	p := dns.NewZoneParser(strings.NewReader("$ORIGIN example.com.\n$TTL 1\n"+lines), "", "")
	for rr, ok := p.Next(); ok; rr, ok = p.Next() {
		records = append(records, rr)
	}
	if err := p.Err(); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records = records
}

// ServeDNS answers one question.
func (s *nameServer) ServeDNS(w dns.ResponseWriter, r *dns.Msg) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	m := new(dns.Msg)
	m.SetReply(r)
	for _, rr := range s.records {
		if strings.EqualFold(rr.Header().Name, r.Question[0].Name) && rr.Header().Rrtype == r.Question[0].Qtype {
			m.Answer = append(m.Answer, rr)
		}
	}
	_ = w.WriteMsg(m) // who does not get it asks again
}

func (s *nameServer) questions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// keyAt is a site's public key.
func (w *world) keyAt(s *lab.Site) peer.PublicKey {
	w.t.Helper()
	st, err := s.Gateway.Status(w.ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	k, err := peer.ParsePublicKey(st.Gateway.PublicKey)
	if err != nil {
		w.t.Fatal(err)
	}
	return k
}

// found waits until a site discovers a gateway of a name as it should be.
func (w *world) found(s *lab.Site, name string, want func(api.Discovered) string) api.Discovered {
	w.t.Helper()
	var got api.Discovered
	w.await(s.Name+" discovers "+name+" as it should be", func() string {
		list, err := s.Gateway.Discovered(w.ctx)
		if err != nil {
			return err.Error()
		}
		for _, d := range list.Gateways {
			if got = d; d.Name.String() == name && d.Source == api.SourceDNS {
				return want(d)
			}
		}
		return fmt.Sprintf("%+v", list)
	})
	return got
}

// TestAPeerIsReachedWhereDNSHasIt has edge know cloud by its key alone, find it by its
// record, and keep to the key when the record has another.
func TestAPeerIsReachedWhereDNSHasIt(t *testing.T) {
	server := newNameServer(t)
	w := newWorld(t, func(site string, o *gateway.Options) {
		if site == "edge" {
			o.Config.Discovery.DNS = config.DNS{Domains: []string{"example.com"}, Servers: []netip.AddrPort{server.addr}}
		}
	})
	cloudKey, edgeKey := w.keyAt(w.Cloud), w.keyAt(w.Edge)
	var at string
	w.await("cloud knows its own address", func() string {
		st, err := w.Cloud.Gateway.Status(w.ctx)
		if err != nil {
			return err.Error()
		}
		if len(st.Gateway.Candidates) == 0 {
			return "none yet"
		}
		at = st.Gateway.Candidates[0].Address
		return ""
	})
	server.announce(t, "cloud", cloudKey, at)
	w.found(w.Edge, "cloud", func(d api.Discovered) string {
		if d.State != api.DiscoveredNew || d.PublicKey != cloudKey.String() || len(d.Addresses) != 1 || d.DNSSEC != api.DNSSECNone {
			return fmt.Sprintf("%+v", d)
		}
		return ""
	})
	if _, known := w.status(w.Edge, "cloud"); known {
		t.Error("what was found is a peer without being approved")
	}
	var refused *admin.Error
	_, err := w.Edge.Gateway.DiscoveredApprove(w.ctx, "cloud", api.DiscoveredApproveRequest{})
	if _, known := w.status(w.Edge, "cloud"); known || !errors.As(err, &refused) || !refused.Usage || !strings.Contains(refused.Message, peer.Fingerprint(cloudKey)) {
		t.Errorf("approved without a fingerprint: peer %v, %v; want it refused, with the one found", known, err)
	}
	for _, p := range []struct {
		site *lab.Site
		peer api.Peer
	}{
		{w.Edge, api.Peer{Name: "cloud", PublicKey: cloudKey.String()}},
		{w.Cloud, api.Peer{Name: "edge", PublicKey: edgeKey.String()}},
	} {
		if err := p.site.Gateway.PeerAdd(w.ctx, api.PeerAddRequest{Peer: p.peer}); err != nil {
			t.Fatal(err)
		}
	}
	w.awaitPeer(w.Edge, "cloud", func(p api.PeerStatus) string {
		if p.State != api.StateConnected || p.Path.Remote != at || p.Path.Source != api.SourceDNS {
			return fmt.Sprintf("%s at %s of %s (%s)", p.State, p.Path.Remote, p.Path.Source, p.Reason)
		}
		return ""
	})

	// Somebody else's key in the same record, at an address of his own.
	other := peer.PublicKey{1, 31: 1}
	server.announce(t, "cloud", other, "198.51.100.77:51820")
	w.found(w.Edge, "cloud", func(d api.Discovered) string {
		if d.State != api.DiscoveredConflict || d.Peer != "cloud" || d.Code != "PST0440" || d.PublicKey != other.String() {
			return fmt.Sprintf("%+v", d)
		}
		return ""
	})
	w.await("a check shows PST0440", func() string {
		report, err := w.Edge.Gateway.Checks(w.ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range report.Checks {
			if c.Name == "dns" && c.Code == "PST0440" && strings.Contains(c.Cause, "cloud") {
				return ""
			}
		}
		return fmt.Sprintf("none of %+v does", report.Checks)
	})
	p := w.awaitPeer(w.Edge, "cloud", connectedPeer)
	if p.PublicKey != cloudKey.String() {
		t.Errorf("cloud has the key %s, want it as before", p.PublicKey)
	}
	for _, c := range p.Candidates {
		if strings.HasPrefix(c.Address, "198.51.100.77") {
			t.Errorf("%+v is tried, which the record of another key names", c)
		}
	}
	if server.questions() == 0 {
		t.Error("nobody was asked")
	}
}

// Whoever writes the zone, or answers for it, may put as many records there with a peer's key as it
// likes. That costs one write, and none when the records are looked at again.
func TestAZoneWithManyRecordsOfAPeerCausesFewWrites(t *testing.T) {
	server := newNameServer(t)
	w := newWorld(t, func(site string, o *gateway.Options) {
		if site == "edge" {
			o.Config.Discovery.DNS = config.DNS{Domains: []string{"example.com"}, Servers: []netip.AddrPort{server.addr}}
		}
	})
	cloudKey := w.keyAt(w.Cloud)
	if err := w.Edge.Gateway.PeerAdd(w.ctx, api.PeerAddRequest{Peer: api.Peer{Name: "cloud", PublicKey: cloudKey.String()}}); err != nil {
		t.Fatal(err)
	}
	writes := func() (n int) {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(filepath.Dir(w.Edge.File), "state", "observed.json"))
		if errors.Is(err, fs.ErrNotExist) {
			return 0
		}
		var header struct{ Generation int }
		if line, _, _ := bytes.Cut(data, []byte("\n")); err != nil || json.Unmarshal(line, &header) != nil {
			t.Fatal(err)
		}
		return header.Generation
	}
	before := writes()
	const instances = 40
	var records []dns.RR
	for n := range instances {
		server.announce(t, fmt.Sprintf("n%02d", n), cloudKey, "203.0.113.1:51820")
		records = append(records, server.records...)
	}
	server.mu.Lock()
	server.records = records
	server.mu.Unlock()
	for n := range instances {
		w.found(w.Edge, fmt.Sprintf("n%02d", n), func(d api.Discovered) string {
			if d.Peer != "cloud" {
				return fmt.Sprintf("%+v", d)
			}
			return ""
		})
	}
	w.awaitPeer(w.Edge, "cloud", func(p api.PeerStatus) string { // by then the records were used
		if !slices.ContainsFunc(p.Candidates, func(c api.Candidate) bool { return c.Source == api.SourceDNS }) {
			return fmt.Sprintf("no candidate is from DNS: %+v", p.Candidates)
		}
		return ""
	})
	if n := writes() - before; n == 0 || n >= instances/2 {
		t.Errorf("%d records cause %d writes", instances, n)
	}
}
