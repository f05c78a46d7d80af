package gateway_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/tunnel/peer"
)

// mallory is a peer of cloud, by its key, that does what it likes.
func mallory(w *world, allow ...string) *stranger {
	w.t.Helper()
	key := newKey(w.t)
	if err := w.Cloud.Gateway.PeerAdd(w.ctx, api.PeerAddRequest{
		Peer: api.Peer{Name: "mallory", PublicKey: key.Public().String(), Allow: allow},
	}); err != nil {
		w.t.Fatal(err)
	}
	s := newStranger(w.t, w.host("mallory", "203.0.113.66"), key,
		peer.Config{Name: "cloud", PublicKey: siteKey(w.Cloud), Endpoints: []netip.AddrPort{endpoint(w.Cloud)}})
	w.reaches(s, w.Cloud)
	return s
}

func TestASigningRequestForAnotherNameIsRefused(t *testing.T) {
	w := newWorld(t)
	m := mallory(w, both...)
	for what, subject := range map[string]pkix.Name{
		"a group":        {Organization: []string{"system:masters"}},
		"another's name": {CommonName: "postern:peer:edge"},
		"an admin":       {CommonName: "system:admin"},
	} {
		_, err := m.client(w.Cloud).Identity(w.ctx, signingRequest(t, subject))
		if !errors.Is(err, auth.ErrDenied) {
			t.Errorf("asking for %s: %v, want a denial", what, err)
		}
	}
	w.audited(w.Cloud, "refuse", map[string]string{"peer": "mallory", "reason": "system:masters"})
	w.audited(w.Cloud, "refuse", map[string]string{"peer": "mallory", "reason": "postern:peer:edge"})
	if n := w.log.count("cloud", "issue", nil); n != 0 {
		t.Errorf("%d identities were issued", n)
	}
	// Its own it gets, by the name that cloud knows it by.
	cert, err := m.client(w.Cloud).Identity(w.ctx, signingRequest(t, pkix.Name{}))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(cert)
	got, err := x509.ParseCertificate(block.Bytes)
	if err != nil || got.Subject.String() != "CN=postern:peer:mallory" {
		t.Errorf("the identity is for %v (%v)", got.Subject, err)
	}
	if n := w.metric(w.Cloud, "postern_auth_decisions_total", `result="csrSubject"`); n != 3 {
		t.Errorf("%v such refusals are counted, want 3", n)
	}
}

func signingRequest(t *testing.T, subject pkix.Name) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

func TestWhatIsNotGrantedIsRefusedAtOnce(t *testing.T) {
	w := newWorld(t)
	m := mallory(w)
	start := time.Now()
	_, err := m.stack.DialTCP(w.ctx, netip.AddrPortFrom(peer.OverlayAddr(siteKey(w.Cloud)), api.PortAPIServer))
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dialling the API server: %v, want a refusal", err)
	}
	attempts := attemptsSince(start)
	w.audited(w.Cloud, "refuse", map[string]string{"peer": "mallory", "service": "apiServer", "code": "PST0"})
	if _, err := m.client(w.Cloud).Identity(w.ctx, signingRequest(t, pkix.Name{})); !errors.Is(err, auth.ErrDenied) {
		t.Errorf("asking for an identity: %v, want a denial", err)
	}
	h, err := m.client(w.Cloud).Hello(w.ctx)
	if err != nil || len(h.Offers) != 0 || h.APIServer != nil {
		t.Errorf("hello tells a peer without grants %+v (%v)", h, err)
	}
	// A ticket is redeemed through its own tunnel and nowhere else.
	if _, err := m.client(w.Cloud).Redeem(w.ctx, ticket.Request{PublicKey: m.key.Public(), Name: "mallory"}); !errors.Is(err, auth.ErrDenied) {
		t.Errorf("redeeming without a ticket: %v, want a denial", err)
	}
	if n := w.metric(w.Cloud, "postern_forward_refused_connections_total", `direction="inbound",reason="not_granted"`); n < 1 || n > attempts {
		t.Errorf("%v refusals are counted, want 1, or one for each of %v attempts", n, attempts)
	}
}

// attemptsSince is how often a connection that was begun then, and has ended, may have been asked for: TCP
// asks again when a second brings no answer.
func attemptsSince(start time.Time) float64 { return 1 + math.Floor(time.Since(start).Seconds()) }

func TestAOneTimePeerReachesNothingButAuth(t *testing.T) {
	w := newWorld(t)
	s := redeemer(w, w.host("guest", "203.0.113.67"), w.invite(w.Cloud, api.InviteRequest{Allow: both}))
	h, err := s.client(w.Cloud).Hello(w.ctx)
	if err != nil || len(h.Offers) != 0 || h.APIServer != nil {
		t.Errorf("hello tells a ticket's holder %+v (%v)", h, err)
	}
	if _, err := s.client(w.Cloud).Identity(w.ctx, signingRequest(t, pkix.Name{})); !errors.Is(err, auth.ErrDenied) {
		t.Errorf("asking for an identity: %v, want a denial", err)
	}
	_, err = s.stack.DialTCP(w.ctx, netip.AddrPortFrom(peer.OverlayAddr(siteKey(w.Cloud)), api.PortAPIServer))
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dialling the API server: %v, want a refusal", err)
	}
	st, err := w.Cloud.Gateway.Status(w.ctx)
	if err != nil || len(st.Peers) != 0 {
		t.Errorf("the one-time peer is shown: %+v (%v)", st.Peers, err)
	}
}

func TestNothingIsCarriedFromOnePeerToAnother(t *testing.T) {
	w := newWorld(t)
	w.peer()
	// Mallory's device sends what is for edge to cloud: as a stock peer its allowed
	// addresses are its own affair.
	edge := peer.OverlayAddr(siteKey(w.Edge))
	key := newKey(t)
	if err := w.Cloud.Gateway.PeerAdd(w.ctx, api.PeerAddRequest{Peer: api.Peer{Name: "mallory", PublicKey: key.Public().String(), Allow: both}}); err != nil {
		t.Fatal(err)
	}
	m := newRawStranger(t, w.host("mallory", "203.0.113.66"), key, siteKey(w.Cloud), endpoint(w.Cloud))
	w.await("cloud has recorded what mallory sent to edge", func() string {
		m.send(echoRequest(peer.OverlayAddr(key.Public()), edge))
		if w.log.count("cloud", "refuse", map[string]string{"peer": "mallory", "reason": edge.String()}) == 0 {
			return "there is no such record"
		}
		return ""
	})
	// Its own address is all it may speak from.
	m.send(echoRequest(edge, peer.OverlayAddr(siteKey(w.Cloud))))
	w.reach(w.Edge, w.Cloud)
	if m.received(edge) {
		t.Error("mallory got an answer from edge")
	}
}

// echoRequest is an ICMPv6 echo request (RFC 4443 §4.1).
func echoRequest(from, to netip.Addr) []byte {
	src, dst := tcpip.AddrFrom16(from.As16()), tcpip.AddrFrom16(to.As16())
	body := header.ICMPv6(make([]byte, header.ICMPv6EchoMinimumSize+8))
	body.SetType(header.ICMPv6EchoRequest)
	body.SetChecksum(header.ICMPv6Checksum(header.ICMPv6ChecksumParams{Header: body, Src: src, Dst: dst}))
	packet := header.IPv6(make([]byte, header.IPv6MinimumSize+len(body)))
	packet.Encode(&header.IPv6Fields{PayloadLength: uint16(len(body)), TransportProtocol: header.ICMPv6ProtocolNumber,
		HopLimit: 64, SrcAddr: src, DstAddr: dst})
	copy(packet[header.IPv6MinimumSize:], body)
	return packet
}

func TestAStockPeerCannotHaveOverlayAddresses(t *testing.T) {
	w := newWorld(t)
	w.peer()
	stock := api.Peer{Name: "router", PublicKey: newKey(t).Public().String(), Stock: true, AllowedIPs: []string{"10.9.0.2/32"}}
	overlay := stock
	overlay.AllowedIPs = []string{netip.PrefixFrom(peer.OverlayAddr(siteKey(w.Edge)), 128).String()}
	w.refused("adding a stock peer with another's address",
		w.Cloud.Gateway.PeerAdd(w.ctx, api.PeerAddRequest{Peer: overlay}), false, "holds the overlay address of peer")
	err := w.edit(w.Cloud, func(g *api.GatewaySpec) { g.Peers = []api.Peer{overlay} })
	if err == nil || !strings.Contains(err.Error(), "holds the overlay address of peer") {
		t.Errorf("configuring one: %v", err)
	}
	w.mustEdit(w.Cloud, func(g *api.GatewaySpec) { g.Peers = nil })

	// A network of local addresses of its own it may have, and then no key whose address is in there
	// becomes a peer's.
	late := newKey(t).Public()
	stock.AllowedIPs = append(stock.AllowedIPs, netip.PrefixFrom(peer.OverlayAddr(late), peer.SiteBits).Masked().String())
	if err := w.Cloud.Gateway.PeerAdd(w.ctx, api.PeerAddRequest{Peer: stock}); err != nil {
		t.Fatal(err)
	}
	w.refused("adding a peer whose address a stock peer has",
		w.Cloud.Gateway.PeerAdd(w.ctx, api.PeerAddRequest{Peer: api.Peer{Name: "late", PublicKey: late.String()}}), false, "peer router has, by its allowedIPs")
	w.refused("granting auth to a stock peer", w.Cloud.Gateway.PeerAllow(w.ctx, "router", api.PeerAllowRequest{Allow: both}), true,
		"router", "overlay address", "apiServer")
	second := stock
	second.Name, second.PublicKey = "switch", newKey(t).Public().String()
	second.AllowedIPs = []string{"10.9.0.0/24"}
	w.refused("two stock peers with one address",
		w.Cloud.Gateway.PeerAdd(w.ctx, api.PeerAddRequest{Peer: second}), false, "router", "switch", "10.9.0.0/24")
	if n := w.log.count("cloud", "grant", map[string]string{"peer": "switch"}); n != 0 {
		t.Error("a grant is recorded that was never made")
	}
	if _, there := w.status(w.Cloud, "switch"); there {
		t.Error("the refused peer is there")
	}
	w.stop(w.Cloud)
	w.start(w.Cloud) // a refused change left nothing in the state directory either
	if _, there := w.status(w.Cloud, "router"); !there {
		t.Error("the first stock peer is gone after a restart")
	}
}

func TestKeysThatCannotBePeers(t *testing.T) {
	w := newWorld(t)
	add := func(p api.Peer) error { return w.Cloud.Gateway.PeerAdd(w.ctx, api.PeerAddRequest{Peer: p}) }
	key := newKey(t).Public().String()
	w.refused("this gateway's own key", add(api.Peer{Name: "self", PublicKey: siteKey(w.Cloud).String()}), false, "own public key")
	w.refused("a key without strength", add(api.Peer{Name: "weak", PublicKey: "AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}), false, "weak")
	w.refused("no key", add(api.Peer{Name: "none"}), true, "no public key")
	w.refused("half a key", add(api.Peer{Name: "half", PublicKey: key[:20]}), true, "publicKey")
	w.refused("a name that is none", add(api.Peer{Name: "No Name", PublicKey: key}), true, "DNS label")
	w.refused("an endpoint that is none", add(api.Peer{Name: "p", PublicKey: key, Endpoints: []string{"203.0.113.1"}}), true, "203.0.113.1")
	w.refused("an unknown service", add(api.Peer{Name: "p", PublicKey: key, Allow: []string{"registry"}}), true, "registry")
	w.refused("allowedIPs of a gateway", add(api.Peer{Name: "p", PublicKey: key, AllowedIPs: []string{"10.0.0.0/8"}}), true, "stock")
	if err := add(api.Peer{Name: "first", PublicKey: key}); err != nil {
		t.Fatal(err)
	}
	w.refused("one key twice", add(api.Peer{Name: "second", PublicKey: key}), false, "first")
	w.refused("one name twice", add(api.Peer{Name: "first", PublicKey: newKey(t).Public().String()}), false, "first", "postern peer remove")
}

func TestAJoinerWithoutAStrongKeyCannotBlockTheBook(t *testing.T) {
	w := newWorld(t)
	text := w.invite(w.Cloud, api.InviteRequest{Allow: both})
	s := redeemer(w, w.host("odd", "203.0.113.68"), text)
	weak := w.request(text, newKey(t), "weak")
	weak.PublicKey = peer.PublicKey{1}
	if _, err := s.client(w.Cloud).Redeem(w.ctx, weak); err == nil {
		t.Error("a key of low order became a peer")
	}
	if _, there := w.status(w.Cloud, "weak"); there {
		t.Error("a key of low order is shown as a peer")
	}
	w.join(w.Edge, w.invite(w.Cloud, api.InviteRequest{Allow: both}), api.JoinRequest{})
	w.connected(w.Cloud, w.Edge)
}

func TestSecretsAreNowhereToBeSeen(t *testing.T) {
	w := newWorld(t)
	text := w.invite(w.Cloud, api.InviteRequest{Allow: both})
	w.join(w.Edge, text, api.JoinRequest{Allow: both})
	w.connected(w.Cloud, w.Edge)
	reply := w.join(w.addSite("third", "203.0.113.55"), w.invite(w.Edge, api.InviteRequest{}), api.JoinRequest{Wait: api.Duration(time.Millisecond)}).Reply
	var seen bytes.Buffer
	seen.WriteString(w.log.String())
	secrets := map[string]string{"the ticket": text, "the reply": reply}
	for _, s := range [...]struct {
		site, peer string
	}{{"cloud", "edge"}, {"edge", "cloud"}} {
		site := w.Cloud
		if s.site == "edge" {
			site = w.Edge
		}
		gatherSecrets(w, site, secrets)
		w.awaitPeer(site, s.peer, func(p api.PeerStatus) string {
			if p.Identity == nil {
				return "no identity yet"
			}
			return ""
		})
		c, err := site.Gateway.Credential(w.ctx, s.peer)
		if err != nil {
			t.Fatal(err)
		}
		secrets[s.site+"'s client key"] = c.ClientKey
		seen.WriteString(published(w, site))
	}
	seen.WriteString(w.log.String())
	if len(secrets) < 10 { // two keys, two credentials, two texts, two peers' and a ticket's keys
		t.Errorf("only %d secrets are known to the test", len(secrets))
	}
	for what, secret := range secrets {
		if len(secret) < 20 {
			t.Errorf("%s is not known to the test: %q", what, secret)
		}
		// A key's own line in PEM, and a ticket's seed without its prefix, give it away too.
		for line := range strings.Lines(strings.TrimPrefix(secret, "postern1")) {
			if line = strings.TrimSpace(line); len(line) >= 40 && !strings.HasPrefix(line, "-----") && strings.Contains(seen.String(), line) {
				t.Errorf("%s is shown or logged", what)
			}
		}
	}
}
