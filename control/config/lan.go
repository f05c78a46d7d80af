package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/discovery/lan"
	"github.com/postern-dev/postern/tunnel/peer"
)

// LAN is discovery by multicast DNS.
type LAN struct {
	Enabled bool
	// Interfaces are those to use; none = all suitable ones.
	Interfaces []string
	TTL        time.Duration
	// AutoPeer are the gateways that become peers as soon as they are found; Secret is the one of a
	// group whose members do. Allow is what these may reach here.
	AutoPeer []AutoPeer
	Secret   peer.PresharedKey
	Allow    []string
}

// AutoPeer is a gateway that becomes a peer as soon as it is found.
type AutoPeer struct {
	// Name is the operator's name for it; empty leaves it to the gateway.
	Name string
	Key  peer.PublicKey
}

// Equal reports whether both have the same effect.
func (l LAN) Equal(o LAN) bool {
	return l.Enabled == o.Enabled && l.TTL == o.TTL && l.Secret.Equal(o.Secret) &&
		slices.Equal(l.Interfaces, o.Interfaces) && slices.Equal(l.AutoPeer, o.AutoPeer) && slices.Equal(l.Allow, o.Allow)
}

// lan checks LAN discovery. The named services must be known.
func (c *checker) lan(at string, d *api.LAN) LAN {
	out := LAN{Enabled: d.Enabled, Interfaces: sortedSet(d.Interfaces), TTL: time.Duration(d.TTL)}
	for i, name := range d.Interfaces {
		if name == "" {
			c.fail(fmt.Sprintf("%s.interfaces[%d]", at, i), "empty (want an interface's name, such as eth0)")
		}
	}
	if out.TTL < lan.MinTTL || out.TTL > lan.MaxTTL || out.TTL%time.Second != 0 {
		c.fail(at+".ttl", "%v is not a number of whole seconds from %v to %v", out.TTL, lan.MinTTL, lan.MaxTTL)
	}
	out.AutoPeer = c.autoPeers(at+".autoPeer", d.AutoPeer)
	if d.SecretFile != "" {
		out.Secret = c.lanSecret(at+".secretFile", d.SecretFile)
	}
	out.Allow = c.allow(at, &api.Peer{Allow: d.Allow})
	if len(d.Allow) > 0 && len(d.AutoPeer) == 0 && d.SecretFile == "" {
		c.warn(at+".allow", "has no effect without autoPeer or secretFile: other gateways become peers by `postern peer approve`, which has an --allow of its own")
	}
	if !d.Enabled && (len(d.Interfaces)+len(d.AutoPeer) > 0 || d.SecretFile != "") {
		c.warn(at+".enabled", "false, so that the other settings of lan have no effect (set enabled: true)")
	}
	return out
}

// autoPeers parses a list of KEY and NAME=KEY. A key may end in "=", but contains none before.
func (c *checker) autoPeers(at string, list []string) []AutoPeer {
	var out []AutoPeer
	for i, s := range list {
		field := fmt.Sprintf("%s[%d]", at, i)
		var p AutoPeer
		if name, key, _ := strings.Cut(s, "="); strings.Trim(key, "=") != "" {
			if err := api.CheckName(name); err != nil {
				c.fail(field, "%v (want KEY, or NAME=KEY)", err)
				continue
			}
			p.Name, s = name, key
		}
		var err error
		if p.Key, err = peer.ParsePublicKey(s); err != nil {
			c.fail(field, "%v (`postern status -o wide` or `postern discover -o json` shows a gateway's)", err)
			continue
		}
		if slices.Contains(out, p) {
			continue
		}
		if slices.ContainsFunc(out, func(o AutoPeer) bool { return o.Key == p.Key || p.Name != "" && o.Name == p.Name }) {
			c.fail(field, "its name or key is in the list already, with another key or name")
			continue
		}
		out = append(out, p)
	}
	return out
}

// lanSecret reads the secret of a LAN group: 32 random bytes, since a listener could guess a
// password from a proof.
func (c *checker) lanSecret(field, configured string) peer.PresharedKey {
	data, ok := c.secret(field, configured)
	if !ok {
		return peer.PresharedKey{}
	}
	key, err := peer.ParsePresharedKey(strings.TrimSpace(string(data)))
	if err != nil || key.IsZero() {
		c.fail(field, "%s holds no secret of 32 random bytes (make one for all gateways of the group: postern key gen)", c.path(field, configured))
	}
	return key
}
