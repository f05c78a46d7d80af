package lab

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/postern-dev/postern/control/api"
)

// gatewayPort is the gateways' default port.
const gatewayPort = 51820

// introduce writes into each site's file what it needs to know about the other.
func (l *Lab) introduce() error {
	for _, p := range []struct{ s, other *Site }{{l.Cloud, l.Edge}, {l.Edge, l.Cloud}} {
		other := api.Peer{Name: p.other.Name, PublicKey: p.other.key.Public().String(), Allow: []string{api.ServiceAuth, api.ServiceAPIServer}}
		if at := p.other.Host.Addrs()[0]; !at.IsPrivate() {
			other.Endpoints = []string{endpoint(at)}
		}
		if err := p.s.know(func(o *api.Peer) { *o = other }); err != nil {
			return err
		}
	}
	if name := l.scenario.fault.named; name != "" {
		l.names.set(name, cloudAddr)
		return l.Edge.know(dial(fmt.Sprintf("%s:%d", name, gatewayPort)))
	}
	return nil
}

func endpoint(a netip.Addr) string { return netip.AddrPortFrom(a, gatewayPort).String() }

// know changes what a site's file says about the other site.
func (s *Site) know(change func(*api.Peer)) error {
	change(&s.other)
	return s.Edit(func(spec *api.GatewaySpec) { spec.Peers = []api.Peer{s.other} })
}

// reload makes the gateway read its file.
func (s *Site) reload(ctx context.Context) error { return s.Gateway.Reload(ctx) }

// learn is know and reload.
func (s *Site) learn(ctx context.Context, change func(*api.Peer)) error {
	if err := s.know(change); err != nil {
		return err
	}
	return s.reload(ctx)
}

// presharedKey writes a file with a new preshared key.
func (s *Site) presharedKey() (string, error) {
	var key [32]byte
	_, _ = rand.Read(key[:]) // never fails
	name := filepath.Join(filepath.Dir(s.File), "preshared.key")
	if err := os.WriteFile(name, []byte(base64.StdEncoding.EncodeToString(key[:])+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("write a preshared key: %w", err)
	}
	return name, nil
}
