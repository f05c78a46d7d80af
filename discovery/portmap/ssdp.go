package portmap

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"time"
)

const (
	ssdpPort = 1900
	// searchWait is how long to wait for answers to a search. The search is sent twice meanwhile,
	// searchAgain apart (UPnP Device Architecture 1.1 §1.3.2 allows up to three times).
	searchWait  = 2500 * time.Millisecond
	searchAgain = 800 * time.Millisecond
	// maxLocations limits how many descriptions of one router are read: a device has one.
	maxLocations = 4
	maxSSDP      = 2048 // bytes of an answer
)

// ssdpGroup is the group address of searches (UPnP Device Architecture 1.1 §1.3.2).
func ssdpGroup() netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{239, 255, 255, 250}), ssdpPort)
}

// searchRequests returns the searches for both versions: a version 2 device should answer both,
// but some answer only their own.
func searchRequests(to netip.AddrPort) [][]byte {
	var out [][]byte
	for _, version := range []int{2, 1} {
		out = append(out, fmt.Appendf(nil, "M-SEARCH * HTTP/1.1\r\nHOST: %v\r\nMAN: \"ssdp:discover\"\r\nMX: 1\r\n"+
			"ST: urn:schemas-upnp-org:device:InternetGatewayDevice:%d\r\n\r\n", to, version))
	}
	return out
}

// search asks the router for its descriptions and waits for the first, and shortly for others.
// Answers count only from the router's address. Their port is not checked, since routers answer
// from other ports.
func (g *igd) search(ctx context.Context, p place) ([]*url.URL, error) {
	ctx, cancel := context.WithTimeout(ctx, searchWait)
	defer cancel()
	conn, err := g.listen(ctx, "udp4", netip.AddrPortFrom(p.client, 0).String())
	if err != nil {
		return nil, fmt.Errorf("search for UPnP devices: %w", err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })()
	if err := g.sendSearch(conn, p.router); err != nil {
		return nil, err
	}
	again := time.AfterFunc(searchAgain, func() {
		_ = g.sendSearch(conn, p.router) // the first one was sent
	})
	defer again.Stop()
	var locations []*url.URL
	refused := errors.New("no answer")
	buf := make([]byte, maxSSDP)
	for len(locations) < maxLocations {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			break // the time is over
		}
		if a, err := netip.ParseAddrPort(from.String()); err != nil || a.Addr().Unmap() != p.router {
			continue
		}
		u, err := parseLocation(buf[:n], p.router)
		if err != nil {
			refused = err
			continue
		}
		if slices.ContainsFunc(locations, func(l *url.URL) bool { return l.String() == u.String() }) {
			continue
		}
		if len(locations) == 0 { // others come at the same time or never
			_ = conn.SetReadDeadline(time.Now().Add(searchAgain / 4))
		}
		locations = append(locations, u)
	}
	if len(locations) == 0 {
		return nil, refused
	}
	return locations, nil
}

func (g *igd) sendSearch(conn net.PacketConn, router netip.Addr) error {
	to := []netip.AddrPort{netip.AddrPortFrom(router, ssdpPort)}
	if g.multicast {
		to = append(to, ssdpGroup())
	}
	var failed error
	for _, a := range to {
		for _, b := range searchRequests(a) {
			if _, err := conn.WriteTo(b, net.UDPAddrFromAddrPort(a)); err != nil {
				failed = fmt.Errorf("search for UPnP devices: %w", err)
			}
		}
	}
	return failed
}

// parseLocation parses an answer to a search.
func parseLocation(b []byte, router netip.Addr) (*url.URL, error) {
	resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(b)), nil)
	if err != nil {
		return nil, errors.New("its answer to a search is no HTTP")
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answers the search with status %d", resp.StatusCode)
	}
	return routerURL(nil, resp.Header.Get("Location"), router)
}

// routerURL parses a URL from a device, relative to base unless that is nil. It must be http at
// the router's own address, written as an address. Otherwise a device could make us send requests
// anywhere.
func routerURL(base *url.URL, text string, router netip.Addr) (*url.URL, error) {
	if text == "" && base == nil {
		return nil, errors.New("it tells no URL")
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("it tells a URL that is none")
	}
	if base != nil {
		u = base.ResolveReference(u)
	}
	host, err := netip.ParseAddr(u.Hostname())
	switch {
	case u.Scheme != "http" || u.User != nil || u.Opaque != "":
		return nil, errors.New("it tells a URL that is not plain http")
	case err != nil || host != router:
		return nil, fmt.Errorf("it tells a URL that leads elsewhere than to the router %v", router)
	}
	if p := u.Port(); p != "" {
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			return nil, errors.New("it tells a URL with a port that is none")
		}
	}
	u.Fragment = ""
	return u, nil
}
