//go:build linux && e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/testenv/pki"
	"github.com/postern-dev/postern/tunnel/peer"
)

// rawPeer sends arbitrary in-band requests: stock WireGuard with a gateway's key (or a ticket's
// one-time key), and an HTTP client.
type rawPeer struct {
	*stock
	gateway string // the overlay address that it talks to
}

// newRawPeer sets up a tunnel to a gateway with the given keys, from behind the NAT.
func newRawPeer(t *testing.T, w *world, key peer.PrivateKey, psk peer.PresharedKey, gw api.GatewayStatus) *rawPeer {
	t.Helper()
	s := newStock(t, w.edge, key, peer.OverlayAddr(key.Public()).String())
	if !psk.IsZero() {
		file := filepath.Join(tempDir(t), "psk")
		writeFile(t, file, psk.Base64()+"\n", 0o600)
		s.run("wg", "set", s.iface, "peer", gw.PublicKey, "preshared-key", file)
	}
	s.connect(gw.PublicKey, fmt.Sprintf("%s:%d", cloudAddr, gatewayPort), gw.Address+"/128")
	return &rawPeer{stock: s, gateway: gw.Address}
}

// post sends a JSON document and returns the status and the response.
func (r *rawPeer) post(ctx context.Context, path string, document any) (int, []byte, error) {
	body, err := json.Marshal(document)
	if err != nil {
		return 0, nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://["+r.gateway+"]:80"+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client(r.host).Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return resp.StatusCode, answer, err
}

// TestIdentityIsTheIssuersToName requests certificates for other subjects with a peer's key.
func TestIdentityIsTheIssuersToName(t *testing.T) {
	ca, err := pki.NewCA("peers")
	if err != nil {
		t.Fatal(err)
	}
	authority, err := ca.Pair()
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile, err := authority.Write(tempDir(t), "ca")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	key := newKey(t)
	cloud := newGateway(t, w.cloud, "cloud", func(s *api.GatewaySpec) {
		s.Services.APIServer = &api.APIServerService{Address: blobUpstream}
		s.Services.Auth = &api.AuthService{Issuer: &api.Issuer{LocalCA: &api.LocalCA{CertFile: certFile, KeyFile: keyFile}}}
		s.Peers = []api.Peer{{Name: "laptop", PublicKey: key.Public().String(), Allow: []string{api.ServiceAuth, api.ServiceAPIServer}}}
	}).start()
	r := newRawPeer(t, w, key, peer.PresharedKey{}, cloud.status().Gateway)
	for name, subject := range map[string]pkix.Name{
		"group system:masters": {CommonName: "postern:peer:laptop", Organization: []string{"system:masters"}},
		"another peer's name":  {CommonName: "postern:peer:edge"},
		"a cluster user":       {CommonName: "admin"},
	} {
		if cert, code := r.requestIdentity(t, subject); cert != nil || code < 400 {
			t.Errorf("%s: status %d, certificate %v; want a refusal", name, code, cert)
		}
	}
	cloud.waitLog("audit", "refuse", "laptop", "system:masters")

	cert, code := r.requestIdentity(t, pkix.Name{})
	if cert == nil {
		t.Fatalf("a request without a subject: status %d, no certificate", code)
	}
	if cert.Subject.CommonName != "postern:peer:laptop" || len(cert.Subject.Organization) != 0 {
		t.Errorf("the certificate is for %s, want CN=postern:peer:laptop alone", cert.Subject)
	}
	if len(cert.ExtKeyUsage) != 1 || cert.ExtKeyUsage[0] != x509.ExtKeyUsageClientAuth || cert.IsCA {
		t.Errorf("the certificate is good for %v (CA: %v), want client authentication alone", cert.ExtKeyUsage, cert.IsCA)
	}
	cloud.waitLog("audit", "issue", "laptop")
}

// requestIdentity posts a CSR for the subject and returns the certificate, if any.
func (r *rawPeer) requestIdentity(t *testing.T, subject pkix.Name) (*x509.Certificate, int) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, key)
	if err != nil {
		t.Fatal(err)
	}
	csr := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	code, answer, err := r.post(within(t, patience), "/v1/identity", map[string]string{"version": "1.0", "csr": string(csr)})
	if err != nil {
		t.Fatal(err)
	}
	if code >= 300 {
		return nil, code
	}
	var got struct{ Certificate string }
	if err := json.Unmarshal(answer, &got); err != nil {
		t.Fatal(err)
	}
	block, rest := pem.Decode([]byte(got.Certificate))
	if block == nil || len(bytes.TrimSpace(rest)) != 0 {
		t.Fatalf("the answer's certificate is %q", got.Certificate)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert, code
}

// redemption is a request to redeem a ticket.
type redemption struct {
	Version   string   `json:"version"`
	PublicKey string   `json:"publicKey"`
	Name      string   `json:"name"`
	Wants     []string `json:"wants,omitempty"`
	Proof     []byte   `json:"proof,omitempty"`
}

// redeeming returns a request to redeem a ticket for a key, with proof of the key.
func redeeming(t *testing.T, text string, key peer.PrivateKey, name string, wants ...string) redemption {
	t.Helper()
	tk, err := ticket.Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	q, err := ticket.Request{PublicKey: key.Public(), Name: name, Wants: wants}.Prove(ticket.InBand, ticketKeys(t, text).ID, tk.Inviter, key)
	if err != nil {
		t.Fatal(err)
	}
	return redemption{"1.0", q.PublicKey.String(), name, wants, q.Proof}
}

// newRawJoiner sets up the one-time tunnel of a ticket.
func newRawJoiner(t *testing.T, w *world, text string, gw api.GatewayStatus) *rawPeer {
	t.Helper()
	keys := ticketKeys(t, text)
	return newRawPeer(t, w, keys.OneTime, keys.Tunnel, gw)
}

// TestTicketHasOneWinner lets a hundred redemptions with as many keys race for one ticket, all
// through the one tunnel that a thief and the owner share.
func TestTicketHasOneWinner(t *testing.T) {
	const racers = 100
	w := newWorld(t)
	cloud := newGateway(t, w.cloud, "cloud").start()
	text := cloud.invite()
	r := newRawJoiner(t, w, text, cloud.status().Gateway)
	codes := make([]int, racers)
	var wg sync.WaitGroup
	for i := range racers {
		document := redeeming(t, text, newKey(t), fmt.Sprintf("joiner-%d", i))
		wg.Go(func() {
			code, _, err := r.post(within(t, patience), "/v1/redeem", document)
			if err != nil {
				t.Errorf("redemption %d: %v", i, err)
			}
			codes[i] = code
		})
	}
	wg.Wait()
	count := map[int]int{}
	for _, c := range codes {
		count[c]++
	}
	// After several in a row a ticket's holders get 429.
	lost, late := count[http.StatusConflict], count[http.StatusTooManyRequests]
	if count[http.StatusOK] != 1 || lost == 0 || lost+late != racers-1 {
		t.Errorf("answers by status: %v; want one 200, and 409 or 429 for the %d others", count, racers-1)
	}
	if peers := cloud.status().Peers; len(peers) != 1 {
		t.Errorf("cloud has %d peers, want one", len(peers))
	}
	if n, _ := cloud.metric("postern_ticket_alarms_total"); n != float64(lost) {
		t.Errorf("postern_ticket_alarms_total is %v, want %d", n, lost)
	}
}

// TestOneTimeKeyReachesNothingElse tries what a ticket's holder might before redeeming.
func TestOneTimeKeyReachesNothingElse(t *testing.T) {
	w := newWorld(t)
	blobServer(t, w.cloud)
	cloud := newGateway(t, w.cloud, "cloud", offerBlob).start()
	text := cloud.invite("--allow", "auth")
	r := newRawJoiner(t, w, text, cloud.status().Gateway)
	ctx := within(t, patience)

	unproven := redemption{"1.0", newKey(t).Public().String(), "mallory", nil, nil}
	if code, answer, err := r.post(ctx, "/v1/redeem", unproven); err != nil || code != http.StatusForbidden || !bytes.Contains(answer, []byte("upgrade")) {
		t.Errorf("a redemption without a proof: status %d, %s, %v; want 403 and that the joiner is to be upgraded", code, answer, err)
	}
	greedy := redeeming(t, text, newKey(t), "mallory", "auth", blobService)
	if code, answer, err := r.post(ctx, "/v1/redeem", greedy); err != nil || code != http.StatusForbidden {
		t.Errorf("a redemption that asks for more than was granted: status %d, %s, %v; want 403", code, answer, err)
	}
	cloud.waitLog("audit", "refuse", "grant")
	if code, answer, err := r.post(ctx, "/v1/identity", map[string]string{"version": "1.0", "csr": ""}); err != nil || code != http.StatusForbidden {
		t.Errorf("an identity for a one-time key: status %d, %s, %v; want 403", code, answer, err)
	}
	if got, err := fetch(ctx, w.edge, fmt.Sprintf("http://[%s]:%d/", r.gateway, blobPort)); err == nil {
		t.Errorf("a one-time key reaches a service: %q", got)
	}
	if peers := cloud.status().Peers; len(peers) != 0 {
		t.Errorf("cloud has peers %+v, want none", peers)
	}
}

// TestFiveFailuresBurnATicket guesses the name that --for binds the ticket to.
func TestFiveFailuresBurnATicket(t *testing.T) {
	const failures = 5
	w := newWorld(t)
	cloud := newGateway(t, w.cloud, "cloud").start()
	owner := newKey(t)
	text := cloud.invite("--for", owner.Public().String())
	r := newRawJoiner(t, w, text, cloud.status().Gateway)
	for i := range failures {
		if i == failures-1 { // the tunnel may end with the ticket, before the answer
			_, _, _ = r.post(within(t, 5*time.Second), "/v1/redeem", redeeming(t, text, newKey(t), "mallory"))
			break
		}
		code, answer, err := r.post(within(t, patience), "/v1/redeem", redeeming(t, text, newKey(t), "mallory"))
		if err != nil || code != http.StatusForbidden {
			t.Fatalf("failure %d: status %d, %s, %v; want 403", i, code, answer, err)
		}
	}
	cloud.waitLog("audit", "burn")
	if code, answer, err := r.post(within(t, 5*time.Second), "/v1/redeem", redeeming(t, text, owner, "edge")); err == nil && code == http.StatusOK {
		t.Errorf("a burned ticket was redeemed: %s", answer)
	}
	if peers := cloud.status().Peers; len(peers) != 0 {
		t.Errorf("cloud has peers %+v, want none", peers)
	}
}
