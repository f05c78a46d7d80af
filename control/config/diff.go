package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Change is one field that differs between two configurations.
type Change struct {
	Path     string
	Old, New string
	// Restart marks a field that a running gateway cannot change.
	Restart bool
}

// Changes are the differences between two configurations, sorted by path. Peers are
// compared as a whole, by name.
type Changes struct {
	Fields []Change
	// Added, Removed and Changed are names of peers; a new preshared key counts as a change even if
	// its path is the same.
	Added, Removed, Changed []string
}

// IsEmpty reports whether a reload has nothing to do.
func (c Changes) IsEmpty() bool {
	return len(c.Fields) == 0 && len(c.Added)+len(c.Removed)+len(c.Changed) == 0
}

// RestartError is nil if a running gateway can apply the changes. Otherwise the whole reload is
// refused, since nobody wants half a configuration.
func (c Changes) RestartError() error {
	var fields []string
	for _, f := range c.Fields {
		if f.Restart {
			fields = append(fields, fmt.Sprintf("%s (%s → %s)", f.Path, f.Old, f.New))
		}
	}
	if len(fields) == 0 {
		return nil
	}
	return fmt.Errorf("a running gateway cannot change %s (restart it to apply)", strings.Join(fields, ", "))
}

// needsRestart reports whether a running gateway cannot change a field: its identity, the place of
// its state, the sockets that its peers and commands know, and its objects in the cluster.
func needsRestart(path string) bool {
	switch path {
	case "metadata.name", "spec.stateDir", "spec.privateKeyFile", "spec.listen.port", "spec.mtu", "spec.admin.socket",
		"spec.discovery.keepalive":
		return true
	}
	return strings.HasPrefix(path, "spec.kubernetes.")
}

// Diff compares two configurations by meaning: order and spelling do not count.
func Diff(old, new *Resolved) Changes {
	var c Changes
	before, after := fields(old), fields(new)
	for _, path := range sortedKeys(union(before, after)) {
		if before[path] != after[path] {
			c.Fields = append(c.Fields, Change{path, before[path], after[path], needsRestart(path)})
		}
	}
	if !old.PrivateKey.Equal(new.PrivateKey) && old.PrivateKeyFile == new.PrivateKeyFile {
		c.Fields = append(c.Fields, Change{"spec.privateKeyFile", "another key", "the key now in " + new.PrivateKeyFile, true})
	}
	was := map[string]Peer{}
	for _, p := range old.Peers {
		was[p.Name] = p
	}
	for _, p := range new.Peers {
		q, known := was[p.Name]
		delete(was, p.Name)
		switch {
		case !known:
			c.Added = append(c.Added, p.Name)
		case !p.equal(q):
			c.Changed = append(c.Changed, p.Name)
		}
	}
	c.Removed = sortedKeys(was)
	slices.Sort(c.Added)
	slices.Sort(c.Changed)
	return c
}

// fields returns the effective values outside of peers, including the default private key's path.
// The content of CA files matters, since peers are told it, and so does that of password files, of
// which only a fingerprint is kept.
func fields(r *Resolved) map[string]string {
	out := map[string]string{}
	for _, v := range r.Values() {
		if !strings.HasPrefix(v.Path, "spec.peers") {
			out[v.Path] = v.Value
		}
	}
	out["spec.stateDir"], out["spec.admin.socket"] = r.StateDir, r.AdminSocket
	out["spec.privateKeyFile"] = r.PrivateKeyFile
	if a := r.Services.APIServer; a != nil && a.CAData != nil {
		out["spec.services.apiServer.caFile"] += " " + fingerprint(a.CAData)
	}
	if !r.Discovery.LAN.Secret.IsZero() {
		out["spec.discovery.lan.secretFile"] += " " + fingerprint([]byte(r.Discovery.LAN.Secret.Base64()))
	}
	if r.Proxy.Password != "" {
		out["spec.proxy.passwordFile"] += " " + fingerprint([]byte(r.Proxy.Password))
	}
	for i, t := range r.Discovery.TURNServers {
		at := fmt.Sprintf("spec.discovery.turnServers[%d].", i)
		out[at+"passwordFile"] += " " + fingerprint([]byte(t.Password))
		out[at+"caFile"] += " " + fingerprint(t.CAData)
	}
	return out
}

func union(a, b map[string]string) map[string]bool {
	all := map[string]bool{}
	for k := range a {
		all[k] = true
	}
	for k := range b {
		all[k] = true
	}
	return all
}

func (p Peer) equal(q Peer) bool {
	if p.Name != q.Name || p.PublicKey != q.PublicKey || !p.PresharedKey.Equal(q.PresharedKey) || p.Stock != q.Stock || p.Joined != q.Joined || p.Mode != q.Mode {
		return false
	}
	if !slices.Equal(p.Endpoints, q.Endpoints) || !slices.Equal(p.EndpointNames, q.EndpointNames) || !slices.Equal(p.Allow, q.Allow) || !slices.Equal(p.AllowedIPs, q.AllowedIPs) ||
		!slices.Equal(p.Export, q.Export) || !slices.Equal(p.Import, q.Import) {
		return false
	}
	if p.Direct.AuthURL != q.Direct.AuthURL || p.Direct.APIServerURL != q.Direct.APIServerURL ||
		p.Direct.Token != q.Direct.Token || p.Direct.Used != q.Direct.Used || !slices.Equal(p.Direct.CA, q.Direct.CA) {
		return false
	}
	return maps.Equal(p.Local, q.Local) && maps.Equal(p.Labels, q.Labels)
}
