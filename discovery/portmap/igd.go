package portmap

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"
)

// errGone is wrapped by errors that say that the router no longer lists the mapping.
var errGone = errors.New("the router does not list the mapping any more")

func errorsGone(err error) bool { return errors.Is(err, errGone) }

const (
	// httpTimeout limits one request to the router. Redirections are not followed.
	httpTimeout = 5 * time.Second
	// maxBody limits how much of an answer is read, in bytes. Descriptions have 2 to 10 KB.
	maxBody = 64 << 10
	// maxHeader limits the header of an answer, in bytes.
	maxHeader = 8 << 10
	// conflictTries is how many other ports are tried if a port is taken.
	conflictTries = 4
	// mappingDescription is what the router shows to its owner.
	mappingDescription = "postern"
)

// Error codes of WANIPConnection (WANIPConnection:2 §2.5) and of the UPnP Device Architecture 1.1
// §3.2.2 that are handled specially.
const (
	upnpNoSuchEntry      = 714
	upnpConflict         = 718
	upnpSamePorts        = 724
	upnpPermanentOnly    = 725
	upnpConflictOther    = 729
	upnpActionNotAllowed = 606
)

// igd talks to an Internet Gateway Device: it finds it by SSDP, reads its description and sends
// SOAP requests. Whatever a device says, requests go only to the router's own address (the dialer
// refuses others), by plain http, without proxies and redirections. Only one goroutine at a time
// may use it.
type igd struct {
	dial   dialFunc
	listen listenFunc
	// multicast sends the search to the SSDP group as well, for routers that do not answer a
	// search at their own address (UPnP 1.0 did not require it).
	multicast bool

	found igdService // the last working service; zero = none yet
	of    netip.Addr // the router that it belongs to
}

type (
	dialFunc   func(ctx context.Context, network, address string) (net.Conn, error)
	listenFunc func(ctx context.Context, network, address string) (net.PacketConn, error)
)

// igdService is a service that maps ports.
type igdService struct{ kind, control string }

// client returns an HTTP client for the router's own address.
func (g *igd) client(router netip.Addr) *http.Client {
	return &http.Client{
		Timeout: httpTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				to, err := netip.ParseAddrPort(address)
				if err != nil || to.Addr() != router {
					return nil, fmt.Errorf("%s is not the router's address %v", address, router)
				}
				return g.dial(ctx, network, address)
			},
			DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxHeader,
		},
	}
}

// do carries out an order.
func (g *igd) do(ctx context.Context, o upnpOrder) upnpResult {
	if g.of != o.router {
		g.found, g.of = igdService{}, o.router
	}
	switch o.kind {
	case taskCheck:
		return g.check(ctx, o)
	case taskDelete:
		return upnpResult{err: g.remove(ctx, o)}
	case taskMap:
	}
	if g.found.control != "" {
		if r := g.mapWith(ctx, g.found, o); r.err == nil {
			return r
		}
		g.found = igdService{}
	}
	services, err := g.find(ctx, o.place)
	if err != nil {
		return upnpResult{err: err}
	}
	var r upnpResult
	for _, s := range services {
		if r = g.mapWith(ctx, s, o); r.err == nil {
			g.found = s
			return r
		}
	}
	return r
}

// find lists the services that may map ports, the best first.
func (g *igd) find(ctx context.Context, p place) ([]igdService, error) {
	locations, err := g.search(ctx, p)
	if err != nil {
		return nil, err
	}
	var services []igdService
	for _, l := range locations {
		var s []igdService
		if s, err = g.describe(ctx, p.router, l); err == nil {
			services = append(services, s...)
		}
	}
	if len(services) == 0 {
		if err == nil {
			err = errors.New("its description has no service that maps ports")
		}
		return nil, err
	}
	return services, nil
}

// mapWith creates or renews the mapping with one service.
func (g *igd) mapWith(ctx context.Context, s igdService, o upnpOrder) upnpResult {
	address, err := g.externalAddress(ctx, s, o.router)
	if err != nil {
		return upnpResult{err: err}
	}
	port, lifetime := o.external.Port(), o.lifetime
	for try := 0; ; try++ {
		err = g.add(ctx, s, o, port, lifetime)
		var e *soapError
		switch {
		case err == nil:
			if lifetime == 0 {
				lifetime = o.lifetime // it does not expire; it is checked anyway
			}
			return upnpResult{external: netip.AddrPortFrom(address, port), lifetime: lifetime}
		case !errors.As(err, &e) || try > conflictTries:
			return upnpResult{err: err}
		case e.code == upnpPermanentOnly && lifetime > 0:
			lifetime = 0
		case e.code == upnpSamePorts && port != o.internal:
			port = o.internal
		case e.code == upnpConflict || e.code == upnpConflictOther:
			port = dynamicPort()
		default:
			return upnpResult{err: err}
		}
	}
}

// dynamicPort returns a random port that is assigned to no service (RFC 6335 §6).
func dynamicPort() uint16 { return uint16(49152 + rand.N(65536-49152)) }

func (g *igd) add(ctx context.Context, s igdService, o upnpOrder, port uint16, lifetime time.Duration) error {
	_, err := g.call(ctx, o.router, s, "AddPortMapping", []soapArg{
		{"NewRemoteHost", ""}, {"NewExternalPort", portText(port)}, {"NewProtocol", "UDP"},
		{"NewInternalPort", portText(o.internal)}, {"NewInternalClient", o.client.String()},
		{"NewEnabled", "1"}, {"NewPortMappingDescription", mappingDescription},
		{"NewLeaseDuration", strconv.Itoa(int(lifetime / time.Second))},
	})
	return err
}

func (g *igd) externalAddress(ctx context.Context, s igdService, router netip.Addr) (netip.Addr, error) {
	out, err := g.call(ctx, router, s, "GetExternalIPAddress", nil)
	if err != nil {
		return netip.Addr{}, err
	}
	a, err := netip.ParseAddr(out["NewExternalIPAddress"])
	if err != nil || !a.Is4() {
		return netip.Addr{}, errors.New("it does not know its external address (is it connected?)")
	}
	return a, nil
}

// check checks whether the router still lists the mapping as ours.
func (g *igd) check(ctx context.Context, o upnpOrder) upnpResult {
	if g.found.control == "" {
		return upnpResult{err: errors.New("its service has to be found again")}
	}
	out, err := g.call(ctx, o.router, g.found, "GetSpecificPortMappingEntry", entry(o.external.Port()))
	var e *soapError
	switch {
	case errors.As(err, &e) && e.code == upnpNoSuchEntry:
		return upnpResult{err: errGone}
	case err != nil:
		return upnpResult{err: err}
	case out["NewInternalClient"] != o.client.String() || out["NewInternalPort"] != portText(o.internal):
		return upnpResult{err: fmt.Errorf("%w: the port leads to another host", errGone)}
	}
	address, err := g.externalAddress(ctx, g.found, o.router)
	return upnpResult{external: netip.AddrPortFrom(address, o.external.Port()), err: err}
}

// remove deletes the mapping, unless it leads to another host.
func (g *igd) remove(ctx context.Context, o upnpOrder) error {
	if g.found.control == "" {
		services, err := g.find(ctx, o.place)
		if err != nil {
			return err
		}
		g.found = services[0]
	}
	if r := g.check(ctx, o); errorsGone(r.err) {
		return nil
	}
	_, err := g.call(ctx, o.router, g.found, "DeletePortMapping", entry(o.external.Port()))
	return err
}

// entry returns the arguments that identify a mapping.
func entry(port uint16) []soapArg {
	return []soapArg{{"NewRemoteHost", ""}, {"NewExternalPort", portText(port)}, {"NewProtocol", "UDP"}}
}

func portText(p uint16) string { return strconv.Itoa(int(p)) }
