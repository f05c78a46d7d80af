package config

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/mcs"
	"github.com/postern-dev/postern/tunnel/peer"
)

// peers checks each entry by itself and then against the earlier ones.
func (c *checker) peers(entries []api.Peer, own peer.PrivateKey) []Peer {
	names, keys := map[string]string{}, map[peer.PublicKey]string{}
	listeners := c.ownListeners()
	var self peer.PublicKey
	if !own.IsZero() {
		self = own.Public()
	}
	var out []Peer
	for i := range entries {
		at := fmt.Sprintf("spec.peers[%d]", i)
		p := c.peer(at, &entries[i])
		if first, twice := names[p.Name]; twice {
			c.fail(at+".name", "%q is already the name of %s in line %d (rename one)", p.Name, first, origin(c.origins, first).Line)
		} else if p.Name != "" {
			names[p.Name] = at
		}
		if first, twice := keys[p.PublicKey]; twice {
			c.fail(at+".publicKey", "the same key as %s in line %d (every peer has its own)", first, origin(c.origins, first+".publicKey").Line)
		} else if !p.PublicKey.IsZero() {
			keys[p.PublicKey] = at
			if p.PublicKey == self {
				c.fail(at+".publicKey", "this gateway's own key (give the peer's, as `postern status` shows it there)")
			}
		}
		listeners = c.distinctListeners(at, p, listeners)
		c.distinctAllowedIPs(at, p, out)
		out = append(out, p)
	}
	return out
}

// listener is a listen address and its field.
type listener struct {
	at    api.ListenAddress
	field string
}

// ownListeners returns the gateway's own. One at a host name is unknown.
func (c *checker) ownListeners() []listener {
	spec := &c.doc.Spec
	var out []listener
	add := func(field, address string, protocol api.Protocol) {
		host, port, err := splitHostPort(address)
		addr := netip.IPv6Unspecified()
		if host != "" && err == nil {
			addr, err = netip.ParseAddr(host)
		}
		if err == nil && port != 0 {
			out = append(out, listener{api.ListenAddress{Addr: addr, Ports: api.Ports{Protocol: protocol, First: port, Last: port}}, field})
		}
	}
	add("spec.listen.port", fmt.Sprintf(":%d", *spec.Listen.Port), api.UDP)
	add("spec.http.address", spec.HTTP.Address, api.TCP)
	if a := spec.Services.Auth; a != nil && a.OutOfBand != nil {
		add("spec.services.auth.outOfBand.listen", a.OutOfBand.Listen, api.TCP)
	}
	return out
}

// distinctListeners adds a peer's listeners to those that are taken.
func (c *checker) distinctListeners(at string, p Peer, taken []listener) []listener {
	for _, service := range sortedKeys(p.Local) {
		l := listener{p.Local[service], localField(at, service)}
		if l.at.First == 0 {
			continue
		}
		if i := slices.IndexFunc(taken, func(t listener) bool { return t.at.Overlaps(l.at) }); i >= 0 {
			c.fail(l.field, "%s is already the listener of %s (choose another port)", l.at, taken[i].field)
			continue
		}
		taken = append(taken, l)
	}
	return taken
}

func (c *checker) distinctAllowedIPs(at string, p Peer, before []Peer) {
	for i, prefix := range p.AllowedIPs {
		for j, other := range before {
			if slices.ContainsFunc(other.AllowedIPs, prefix.Overlaps) {
				c.fail(fmt.Sprintf("%s.allowedIPs[%d]", at, i), "%s overlaps an address of spec.peers[%d] (an address leads to one peer)", prefix, j)
			}
		}
	}
}

// peer checks one entry.
func (c *checker) peer(at string, e *api.Peer) Peer {
	p := Peer{Name: e.Name, Stock: e.Stock, Mode: e.Mode}
	switch err := api.CheckName(e.Name); {
	case e.Name == "":
		c.fail(at+".name", "missing (name the peer, as commands will call it)")
	case err != nil:
		c.fail(at+".name", "%v", err)
	}
	c.mode(at, e)
	c.keys(at, e, &p)
	p.Endpoints, p.EndpointNames = c.endpoints(at, e.Stock, e.Endpoints)
	p.Allow = c.allow(at, e)
	p.Export, p.Import = c.clusterServices(at, e)
	p.Local = c.local(at, e, p.Import)
	p.AllowedIPs = c.allowedIPs(at, e)
	p.Direct = c.direct(at, e)
	p.Labels = c.labels(at+".labels", e.Labels)
	return p
}

func (c *checker) labels(at string, labels map[string]string) map[string]string {
	if len(labels) > api.MaxLabels {
		c.fail(at, "has %d, and a peer has at most %d (remove some)", len(labels), api.MaxLabels)
	}
	for _, name := range sortedKeys(labels) {
		if err := api.CheckLabel(name, labels[name]); err != nil {
			c.fail(at, "%v", err)
		}
	}
	return labels
}

// clusterServices checks which services of clusters go to the peer and come from it.
func (c *checker) clusterServices(at string, e *api.Peer) (export, imports mcs.Patterns) {
	if e.Services == nil {
		return nil, nil
	}
	if e.Stock {
		c.fail(at+".services", "a stock WireGuard peer does not support services of clusters (remove services)")
		return nil, nil
	}
	patterns := func(field string, list []string) mcs.Patterns {
		for i, s := range list {
			if err := mcs.CheckPattern(s); err != nil {
				c.fail(fmt.Sprintf("%s.services.%s[%d]", at, field, i), "%v", err)
			}
		}
		return sortedSet(list)
	}
	if len(e.Services.Export) > 0 && !slices.ContainsFunc(c.doc.Spec.Services.Named, func(n api.NamedService) bool { return n.Export != "" }) {
		c.warn(at+".services.export", "exports nothing: no service has an export (add it to services of spec.services.named)")
	}
	return patterns("export", e.Services.Export), patterns("import", e.Services.Import)
}

func (c *checker) mode(at string, e *api.Peer) {
	switch e.Mode {
	case api.ModeInBand:
	case api.ModeOutOfBand:
		c.needsDirect(at, e)
	default:
		c.fail(at+".mode", "%q is not a mode (want InBand or OutOfBand)", e.Mode)
	}
}

func (c *checker) keys(at string, e *api.Peer, p *Peer) {
	if e.PublicKey == "" {
		switch {
		case e.Stock:
			c.fail(at+".publicKey", "missing (a stock peer cannot join by ticket)")
		case e.PresharedKeyFile != "":
			c.fail(at+".presharedKeyFile", "needs a publicKey (peers that join by ticket agree on a preshared key themselves)")
		}
		return
	}
	key, err := peer.ParsePublicKey(e.PublicKey)
	if err != nil {
		c.fail(at+".publicKey", "%v", err)
	}
	p.PublicKey = key
	if e.PresharedKeyFile != "" {
		p.PresharedKey = c.presharedKey(at+".presharedKeyFile", e.PresharedKeyFile)
	}
}

// allow checks that every grant is for an existing service, and that the peer can use it. The API
// server asks a stock peer for a client certificate like anyone, but auth identifies its callers by
// their overlay addresses, and a stock peer has none.
func (c *checker) allow(at string, e *api.Peer) []string {
	for i, s := range e.Allow {
		field := fmt.Sprintf("%s.allow[%d]", at, i)
		switch {
		case s == api.ServiceAuth && e.Stock:
			c.fail(field, "a stock peer cannot use auth: it has no overlay address of its own, from which its identity would be known (remove auth; apiServer and named services can be granted)")
		case s == api.ServiceAPIServer && c.doc.Spec.Services.APIServer == nil:
			c.warn(field, "grants apiServer, which spec.services.apiServer does not offer yet")
		case s != api.ServiceAuth && s != api.ServiceAPIServer && !c.named[s]:
			c.fail(field, "%q is not a service of this gateway (there are: %s)", s, strings.Join(c.grantable(), ", "))
		}
	}
	return sortedSet(e.Allow)
}

func (c *checker) grantable() []string {
	return append([]string{api.ServiceAuth, api.ServiceAPIServer}, sortedKeys(c.named)...)
}

// localField is the field of a listener's address.
func localField(at, service string) string {
	switch {
	case service == api.ServiceAPIServer:
		return at + ".local.apiServer"
	case mcs.IsPortName(service):
		return join(at+".local.services", service)
	}
	return join(at+".local.named", service)
}

func (c *checker) local(at string, e *api.Peer, imports mcs.Patterns) map[string]api.ListenAddress {
	if e.Local == nil {
		return nil
	}
	if e.Stock {
		c.fail(at+".local", "a stock WireGuard peer offers no services to listen for (remove local)")
		return nil
	}
	out := map[string]api.ListenAddress{}
	add := func(service, address string) {
		l, err := api.ParseListen(address)
		switch {
		case err != nil:
			c.fail(localField(at, service), "%v", err)
		case service == api.ServiceAPIServer && !l.Plain():
			c.fail(localField(at, service), "%s: an API server has one TCP port", l)
		default:
			out[service] = l
		}
	}
	if e.Local.APIServer != "" {
		add(api.ServiceAPIServer, e.Local.APIServer)
	}
	for _, service := range sortedKeys(e.Local.Named) {
		if err := api.CheckName(service); err != nil || reservedService(service) {
			c.fail(join(at+".local.named", service), "%q is not the name of a named service", service)
			continue
		}
		add(service, e.Local.Named[service])
	}
	for _, service := range sortedKeys(e.Local.Services) {
		field := join(at+".local.services", service)
		n, port, err := mcs.ParsePortName(service)
		switch l, errListen := api.ParseListen(e.Local.Services[service]); {
		case err != nil:
			c.fail(field, "%v", err)
		case !imports.Match(n.Namespace, ""):
			c.fail(field, "nothing of the namespace %s is imported from the peer (add it to %s.services.import)", n.Namespace, at)
		case errListen == nil && (l.Protocol != port.Protocol || l.Len() != 1):
			c.fail(field, "%s is not one port of %s (want IP:PORT, with /UDP appended for UDP)", l, port.Protocol)
		default:
			add(service, e.Local.Services[service])
		}
	}
	return out
}

func (c *checker) allowedIPs(at string, e *api.Peer) []netip.Prefix {
	switch {
	case !e.Stock && len(e.AllowedIPs) > 0:
		c.fail(at+".allowedIPs", "only for stock peers; others have their overlay address and no other (remove it, or add stock: true)")
		return nil
	case e.Stock && len(e.AllowedIPs) == 0:
		c.fail(at+".allowedIPs", "missing (a stock peer needs the addresses it may send from)")
	}
	var out []netip.Prefix
	for i, s := range e.AllowedIPs {
		p, err := ParseAllowedIP(s)
		if err != nil {
			c.fail(fmt.Sprintf("%s.allowedIPs[%d]", at, i), "%v", err)
			continue
		}
		out = append(out, p)
	}
	return out
}

// CheckEndpoint reports why s cannot be dialled, or nil: it requires IP:port or host:port.
func CheckEndpoint(s string) error {
	if _, err := ParseEndpoint(s); err != nil && CheckDialAddress(s) != nil {
		return err
	}
	return nil
}

// ParseEndpoint parses an underlay address to dial: IP:port.
func ParseEndpoint(s string) (netip.AddrPort, error) {
	a, err := netip.ParseAddrPort(s)
	switch {
	case err != nil:
		return netip.AddrPort{}, fmt.Errorf("%q is neither IP:port nor host:port (IPv6 addresses go in brackets)", s)
	case a.Port() == 0:
		return netip.AddrPort{}, fmt.Errorf("%q has port 0 (want 1 to 65535)", s)
	case a.Addr().IsUnspecified() || a.Addr().IsMulticast():
		return netip.AddrPort{}, fmt.Errorf("%q is not an address that can be dialled", s)
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()), nil
}

// ParseAllowedIP parses an address or prefix of a stock peer. In the overlay, where the address is
// the key, it may have a network of its own; the tunnel makes sure that no peer is in there.
func ParseAllowedIP(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		a, errAddr := netip.ParseAddr(s)
		if errAddr != nil || a.Zone() != "" {
			return netip.Prefix{}, fmt.Errorf("%q is neither an IP address nor a prefix such as 10.9.0.2/32", s)
		}
		p = netip.PrefixFrom(a, a.BitLen())
	}
	if p.Masked() != p {
		return netip.Prefix{}, fmt.Errorf("%q has bits set beyond its length (want %s)", s, p.Masked())
	}
	if p.Overlaps(peer.OverlayPrefix) && p.Bits() < peer.SiteBits {
		return netip.Prefix{}, fmt.Errorf("%q overlaps the overlay %s, whose addresses belong to keys (choose other addresses, or at most a /%d)", s, peer.OverlayPrefix, peer.SiteBits)
	}
	return p, nil
}

// ResolvePeer checks one peer that is not from the file (`peer add`). The services are the named
// ones of this gateway. Paths in the problems start with the field.
func ResolvePeer(e api.Peer, named []NamedService) (Peer, error) {
	if o := e.OutOfBand; o != nil && (o.CAFile != "" || o.TokenFile != "") {
		return Peer{}, errors.New("outOfBand: the gateway does not read files for others (put the peer into the configuration file)")
	}
	if e.PresharedKeyFile != "" {
		return Peer{}, errors.New("presharedKeyFile: the gateway does not read files for others (send the key itself)")
	}
	if e.Mode == "" {
		e.Mode = api.ModeInBand
	}
	c := &checker{doc: new(api.Gateway), origins: map[string]Origin{}, files: osFiles{}, named: map[string]bool{}}
	for _, s := range named {
		c.named[s.Name] = true
	}
	p := c.peer("peer", &e)
	if len(c.problems) > 0 {
		first := c.problems[0]
		return Peer{}, fmt.Errorf("%s: %s", strings.TrimPrefix(first.Path, "peer."), first.Message)
	}
	return p, nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
