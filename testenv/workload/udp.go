package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/miekg/dns"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

const (
	http3Port = ":8443"
	dnsPort   = ":5353"
	// answerAddress is the address of every name.
	answerAddress = "192.0.2.53"
)

// serve serves until ctx ends. HTTP/3 responses echo the request's body.
func serve(ctx context.Context) error {
	pair, err := selfSigned()
	if err != nil {
		return err
	}
	web := &http3.Server{Addr: http3Port, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Server", "workload")
			if _, err := io.Copy(w, r.Body); err != nil {
				fmt.Fprintf(os.Stderr, "%s %s: %v\n", r.Method, r.URL.Path, err)
			}
		})}
	names := &dns.Server{Addr: dnsPort, Net: "udp", Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg)
		m.SetReply(q)
		if q.Question[0].Qtype == dns.TypeA {
			m.Answer = append(m.Answer, &dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 1}, A: net.ParseIP(answerAddress)})
		}
		_ = w.WriteMsg(m) // the client will retry
	})}
	ended := make(chan error, 2)
	go func() { ended <- web.ListenAndServe() }()
	go func() { ended <- names.ListenAndServe() }()
	select {
	case <-ctx.Done():
		return nil
	case err := <-ended:
		return err
	}
}

func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// useHTTP3 sends random bytes, twice over one connection, and compares the responses.
func useHTTP3(ctx context.Context, url string, size int, out io.Writer) error {
	transport := &http3.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}, // only the path is tested
		QUICConfig:      &quic.Config{},
	}
	defer transport.Close()
	client := &http.Client{Transport: transport}
	for range 2 {
		sent := make([]byte, size)
		if _, err := rand.Read(sent); err != nil {
			return err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(sent))
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		switch {
		case err != nil:
			return err
		case !bytes.Equal(got, sent):
			return fmt.Errorf("%d bytes came back, and not those %d that were sent", len(got), len(sent))
		}
		fmt.Fprintf(out, "%s %s: %d bytes\n", resp.Proto, resp.Header.Get("Server"), len(got))
	}
	return nil
}

// useDNS queries like programs do, but only over UDP.
func useDNS(ctx context.Context, server, name string, out io.Writer) error {
	r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		if network != "udp" {
			return nil, errors.New("only UDP is asked by")
		}
		return new(net.Dialer).DialContext(ctx, network, server)
	}}
	found, err := r.LookupHost(ctx, name)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, found)
	return err
}
