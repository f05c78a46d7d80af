package gateway_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/testenv/lab"
	"github.com/postern-dev/postern/testenv/pki"
)

// outsideAt makes a site's auth answer at an address outside the tunnel, with a certificate of
// an authority.
func (w *world) outsideAt(s *lab.Site, ca *pki.CA, address string) error {
	w.t.Helper()
	pair, err := ca.Server("127.0.0.1")
	if err != nil {
		w.t.Fatal(err)
	}
	cert, key, err := pair.Write(w.t.TempDir(), "auth")
	if err != nil {
		w.t.Fatal(err)
	}
	return w.edit(s, func(spec *api.GatewaySpec) {
		spec.Services.Auth.OutOfBand = &api.OutOfBand{Listen: address, TLS: &api.TLSFile{CertFile: cert, KeyFile: key}}
	})
}

// hello asks auth outside the tunnel.
func (w *world) hello(address string, ca *pki.CA, token string) error {
	c, err := auth.NewDirectClient(auth.DirectOptions{URL: "https://" + address, CA: ca.CertPEM(), Token: auth.Token(token)})
	if err != nil {
		return err
	}
	h, err := c.Hello(w.ctx)
	// The server waits two seconds for a request, in which a busy machine may not finish the handshake.
	for err != nil && (strings.Contains(err.Error(), "server closed idle connection") || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF)) {
		h, err = c.Hello(w.ctx)
	}
	if err == nil && h.Name != "cloud" {
		return errors.New("it is " + h.Name)
	}
	return err
}

// One gateway may have peers of both modes, and a peer may change its mode while it is up.
func TestModesMayBeMixed(t *testing.T) {
	w := newWorld(t, checkOften)
	w.join(w.Edge, w.invite(w.Cloud, api.InviteRequest{Allow: both}), api.JoinRequest{})
	w.connected(w.Cloud, w.Edge)
	w.apiServerVerdict(w.Edge, "cloud", api.OK)
	_, err := w.Cloud.Gateway.PeerToken(w.ctx, "edge", api.PeerTokenRequest{})
	w.refused("a token that nothing takes", err, false, "spec.services.auth.outOfBand")

	ca, err := pki.NewCA("outside")
	if err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	if err := w.outsideAt(w.Cloud, ca, address); err != nil {
		t.Fatal(err)
	}
	token, err := w.Cloud.Gateway.PeerToken(w.ctx, "edge", api.PeerTokenRequest{TTL: api.Duration(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(token.NotAfter); left < 59*time.Minute || left > time.Hour {
		t.Errorf("the token is good for %v", left)
	}
	if err := w.hello(address, ca, token.Token); err != nil {
		t.Error(err)
	}
	w.audited(w.Cloud, "issue", map[string]string{"peer": "edge", "reason": "a token for auth outside the tunnel"})

	dir := t.TempDir()
	caFile, tokenFile := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "token")
	for file, text := range map[string]string{caFile: string(ca.CertPEM()), tokenFile: token.Token + "\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.mustEdit(w.Edge, func(spec *api.GatewaySpec) {
		spec.Peers = []api.Peer{{Name: "cloud", Mode: api.ModeOutOfBand, OutOfBand: &api.PeerOutOfBand{
			AuthURL: "https://" + address, APIServerURL: "https://127.0.0.1:1", CAFile: caFile, TokenFile: tokenFile,
		}}}
	})
	w.awaitPeer(w.Edge, "cloud", func(p api.PeerStatus) string {
		if v := p.Reachability.Outbound.Auth; p.Mode != api.ModeOutOfBand || v.Verdict != api.OK || v.Via != "direct" {
			return p.Mode + " " + v.Cause
		}
		if v := p.Reachability.Outbound.APIServer; v.Verdict != api.Error || v.Via != "direct" {
			return "the API server where none is: " + string(v.Verdict)
		}
		if v := p.Reachability.Outbound.Gateway; v.Verdict != api.OK {
			return "the gateway, which carries data: " + v.Cause
		}
		return ""
	})
	k, err := w.Edge.Gateway.Kubeconfig(w.ctx, "cloud")
	if err != nil || k.Server != "https://127.0.0.1:1" || !k.Direct || k.CAData != string(ca.CertPEM()) {
		t.Errorf("kubeconfig: %+v, %v", k, err)
	}
	if p, ok := w.status(w.Cloud, "edge"); !ok || p.Mode != api.ModeInBand {
		t.Errorf("from the other side edge is %s; each side has its own mode", p.Mode)
	}

	w.mustEdit(w.Edge, func(spec *api.GatewaySpec) { spec.Peers = nil })
	w.apiServerVerdict(w.Edge, "cloud", api.OK)
}

// A token that leaked ends with its peer, though that is added again with its key.
func TestATokenEndsThoughItsPeerIsAddedAgain(t *testing.T) {
	w := newWorld(t)
	ca, err := pki.NewCA("outside")
	if err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	if err := w.outsideAt(w.Cloud, ca, address); err != nil {
		t.Fatal(err)
	}
	g, key := w.Cloud.Gateway, newKey(t).Public()
	add := func() {
		t.Helper()
		if err := g.PeerAdd(w.ctx, api.PeerAddRequest{Peer: api.Peer{Name: "other", PublicKey: key.String(), Allow: both}}); err != nil {
			t.Fatal(err)
		}
	}
	token := func() string {
		t.Helper()
		r, err := g.PeerToken(w.ctx, "other", api.PeerTokenRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return r.Token
	}
	add()
	leaked := token()
	if err := w.hello(address, ca, leaked); err != nil {
		t.Fatal(err)
	}
	w.await("the token is older than the peer", func() string { // its time is in whole seconds
		if err := g.PeerRemove(w.ctx, "other", true); err != nil {
			return err.Error()
		}
		add()
		if err := w.hello(address, ca, leaked); !errors.Is(err, auth.ErrDenied) {
			return fmt.Sprint(err)
		}
		return ""
	})
	if err := w.hello(address, ca, token()); err != nil {
		t.Errorf("a new token: %v", err)
	}
}

// Where auth answers outside the tunnel, and with what certificate, changes with a reload; a
// bad one leaves it as it was.
func TestAuthOutsideTheTunnelFollowsReloads(t *testing.T) {
	w := newWorld(t)
	w.peer()
	first, err := pki.NewCA("first")
	if err != nil {
		t.Fatal(err)
	}
	second, err := pki.NewCA("second")
	if err != nil {
		t.Fatal(err)
	}
	one, two := freeAddress(t), freeAddress(t)
	if err := w.outsideAt(w.Cloud, first, one); err != nil {
		t.Fatal(err)
	}
	token, err := w.Cloud.Gateway.PeerToken(w.ctx, "edge", api.PeerTokenRequest{})
	if err != nil {
		t.Fatal(err)
	}
	answers := func(address string, ca *pki.CA) {
		t.Helper()
		if err := w.hello(address, ca, token.Token); err != nil {
			t.Errorf("at %s: %v", address, err)
		}
	}
	silent := func(address string) {
		t.Helper()
		if err := w.hello(address, first, token.Token); !errors.Is(err, auth.ErrUnreachable) {
			t.Errorf("at %s: %v, want no answer", address, err)
		}
	}
	answers(one, first)
	if err := w.outsideAt(w.Cloud, second, one); err != nil { // another certificate at the same address
		t.Fatal(err)
	}
	answers(one, second)
	if err := w.outsideAt(w.Cloud, first, two); err != nil {
		t.Fatal(err)
	}
	answers(two, first)
	silent(one)

	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	err = w.outsideAt(w.Cloud, first, taken.Addr().String())
	if err == nil || !strings.Contains(err.Error(), "spec.services.auth.outOfBand.listen: ") || !strings.Contains(err.Error(), taken.Addr().String()) {
		t.Errorf("an address that is taken: got %v", err)
	}
	answers(two, first)

	w.mustEdit(w.Cloud, func(spec *api.GatewaySpec) {
		spec.Services.Auth.OutOfBand.TLS = nil
		spec.Services.Auth.OutOfBand.Listen = two
	})
	conn, err := (&tls.Dialer{Config: &tls.Config{RootCAs: x509.NewCertPool()}}).DialContext(w.ctx, "tcp", two)
	if err == nil {
		conn.Close()
		t.Error("it still speaks TLS")
	} else if !strings.Contains(err.Error(), "first record does not look like a TLS handshake") {
		t.Errorf("got %v", err)
	}
	w.mustEdit(w.Cloud, func(spec *api.GatewaySpec) { spec.Services.Auth.OutOfBand = nil })
	silent(two)
}
