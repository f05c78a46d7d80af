package gateway_test

import (
	"bytes"
	"encoding/base32"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/testenv/lab"
	"github.com/postern-dev/postern/testenv/simnet"
	"github.com/postern-dev/postern/testenv/simnet/turnserver"
)

const (
	relayUser     = "operator-at-the-relay"
	relayPassword = "correct horse battery staple"
)

// addRelay starts a TURN server, and gives its address.
func (w *world) addRelay() string {
	w.t.Helper()
	addr := netip.MustParseAddr("192.0.2.80")
	host, err := w.Internet.AddHost(simnet.HostOptions{Name: "turn", Addrs: []netip.Addr{addr},
		Link: simnet.Both(simnet.Conditions{Delay: time.Millisecond})})
	if err != nil {
		w.t.Fatal(err)
	}
	s, err := turnserver.ServeHost(host, addr, turnserver.Options{Users: map[string]string{relayUser: relayPassword}})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := s.Close(); err != nil {
			w.t.Error(err)
		}
	})
	return s.AddrPort().String()
}

// useRelay has a site allocate at a TURN server.
func (w *world) useRelay(s *lab.Site, address, password string) {
	w.t.Helper()
	file := filepath.Join(w.t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(password), 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.mustEdit(s, func(g *api.GatewaySpec) {
		g.Discovery.TURNServers = []api.TURNServer{{Address: address, Username: relayUser, PasswordFile: file, Transport: "udp"}}
	})
}

// A ticket tells where its maker is at the relay, and nothing by which others could use it.
func TestTicketsCarryTheRelayedAddressAndNoAccount(t *testing.T) {
	w := newWorld(t)
	w.useRelay(w.Edge, w.addRelay(), relayPassword)
	w.knows(w.Edge, api.SourceRelay)
	text := w.invite(w.Edge, api.InviteRequest{Allow: both})
	decoded, err := ticket.Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	relayed := slices.ContainsFunc(decoded.Candidates, func(c ticket.Candidate) bool {
		return c.Source == api.SourceRelay && c.Addr.Addr() == netip.MustParseAddr("192.0.2.80")
	})
	if !relayed {
		t.Errorf("no relayed address is among %v", decoded.Candidates)
	}
	raw, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(strings.ToUpper(strings.TrimPrefix(text, "postern1")))
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{relayUser, relayPassword} {
		if bytes.Contains(raw, []byte(secret)) || strings.Contains(text, secret) {
			t.Errorf("the ticket holds %q", secret)
		}
	}
	if strings.Contains(w.log.tail(1<<20), relayPassword) {
		t.Error("the log holds the password")
	}
}

// The inviter is behind a NAT and the joiner has no relay of its own: the relayed address
// in the ticket does for both.
func TestAnInviterBehindANATIsReachedOverItsRelay(t *testing.T) {
	w := newWorld(t)
	relay := w.addRelay()
	w.useRelay(w.Edge, relay, relayPassword)
	w.useRelay(w.Cloud, relay, relayPassword)
	w.knows(w.Edge, api.SourceRelay)
	text := w.invite(w.Edge, api.InviteRequest{Allow: both})
	if got := w.join(w.Cloud, text, api.JoinRequest{Allow: both}); got.Outcome != api.JoinConnected {
		t.Fatalf("join gave %+v", got)
	}
	w.connected(w.Cloud, w.Edge)
	w.awaitPeer(w.Edge, "cloud", func(p api.PeerStatus) string {
		if p.Path.Kind != api.PathDirect {
			return "the path is " + p.Path.Kind + " still: " + p.Path.Reason
		}
		if !slices.ContainsFunc(p.Candidates, func(c api.Candidate) bool { return c.Relay == relay }) {
			return fmt.Sprintf("no way by the relay is among %+v", p.Candidates)
		}
		return ""
	})
}

func TestNetCheckNamesWhatARelayRefuses(t *testing.T) {
	w := newWorld(t)
	w.useRelay(w.Edge, w.addRelay(), "not the password")
	var n api.NetCheck
	w.await("all servers answer in time", func() string {
		var err error
		if n, err = w.Edge.Gateway.NetCheck(w.ctx); err != nil {
			t.Fatal(err)
		}
		if n.Mapping != "endpoint-independent" || !slices.Contains(n.PublicAddresses, "198.51.100.7:51820") && !slices.Contains(n.PublicAddresses, "198.51.100.7") {
			return fmt.Sprintf("NAT: got %s and %v", n.Mapping, n.PublicAddresses)
		}
		if len(n.STUNServers) == 0 || n.STUNServers[0].Error != "" || n.STUNServers[0].Mapped == "" {
			return fmt.Sprintf("STUN servers: got %+v", n.STUNServers)
		}
		if len(n.TURNServers) != 1 || !strings.Contains(n.TURNServers[0].Error, "its password is wrong") {
			return fmt.Sprintf("TURN servers: got %+v, want one that says that the account is wrong", n.TURNServers)
		}
		return ""
	})
	if strings.Contains(n.TURNServers[0].Error, "not the password") {
		t.Error("the password is shown")
	}
}

// A reload with another relay, or without, takes effect while peers stay.
func TestRelaysChangeWithTheConfiguration(t *testing.T) {
	w := newWorld(t)
	w.peer()
	relay := w.addRelay()
	relayed := func() bool {
		s, err := w.Edge.Gateway.Status(w.ctx)
		return err == nil && slices.ContainsFunc(s.Gateway.Candidates, func(c api.Candidate) bool { return c.Source == api.SourceRelay })
	}
	w.useRelay(w.Edge, relay, relayPassword)
	w.knows(w.Edge, api.SourceRelay)
	w.awaitPeer(w.Cloud, "edge", func(p api.PeerStatus) string {
		if !slices.ContainsFunc(p.Candidates, func(c api.Candidate) bool { return c.Source == api.SourceRelay }) {
			return "the peer was not told of it yet"
		}
		return ""
	})
	w.mustEdit(w.Edge, func(g *api.GatewaySpec) { g.Discovery.TURNServers = nil })
	w.await("no relayed candidate", func() string {
		if relayed() {
			return "it is there still"
		}
		return ""
	})
	w.connected(w.Cloud, w.Edge)
}
