package gateway_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/testenv/patience"
)

// h3Server serves POST with what it was sent, by HTTP/3, and tells a client what to trust.
func h3Server(t *testing.T) (address string, roots *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"h3.test"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots = x509.NewCertPool()
	roots.AddCert(cert)
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	srv := &http3.Server{
		QUICConfig: &quic.Config{HandshakeIdleTimeout: patience.Left()},
		TLSConfig:  http3.ConfigureTLSConfig(&tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS13}),
		Handler:    http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }),
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(conn) })
	t.Cleanup(func() { _ = srv.Close(); _ = conn.Close(); wg.Wait() })
	return conn.LocalAddr().String(), roots
}

// QUIC as others wrote it runs through the tunnel, with several streams at once.
func TestHTTP3ThroughAUDPService(t *testing.T) {
	w := newWorld(t)
	address, roots := h3Server(t)
	w.offerUDP(w.Cloud, "web", 443, address)
	w.join(w.Edge, w.invite(w.Cloud, api.InviteRequest{Allow: []string{"web"}}), api.JoinRequest{Local: map[string]string{"web": "127.0.0.1:0/UDP"}})
	w.connected(w.Cloud, w.Edge)
	at, err := api.ParseListen(w.localAddress(w.Edge, "cloud", "web"))
	if err != nil {
		t.Fatal(err)
	}
	transport := &http3.Transport{QUICConfig: &quic.Config{HandshakeIdleTimeout: patience.Left()}, TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "h3.test", MinVersion: tls.VersionTLS13}}
	defer transport.Close()
	client := &http.Client{Transport: transport}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			body := make([]byte, 1<<18)
			if _, err := rand.Read(body); err != nil {
				t.Error(err)
				return
			}
			req, err := http.NewRequestWithContext(w.ctx, http.MethodPost, "https://"+at.At(0).String()+"/", bytes.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			resp, err := client.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			h := sha256.New()
			n, err := io.Copy(h, resp.Body)
			if err != nil || resp.ProtoMajor != 3 || [32]byte(h.Sum(nil)) != sha256.Sum256(body) {
				t.Errorf("%s: %d of %d bytes, %v", resp.Proto, n, len(body), err)
			}
		})
	}
	wg.Wait()
	p, _ := w.status(w.Cloud, "edge")
	if p.UDPFlows != 1 {
		t.Errorf("one QUIC connection is %d flows", p.UDPFlows)
	}
}
