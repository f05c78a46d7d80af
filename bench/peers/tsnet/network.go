package main

import (
	"crypto/tls"
	"errors"
	"expvar"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"

	"tailscale.com/derp/derpserver"
	"tailscale.com/metrics"
	"tailscale.com/net/stun"
	"tailscale.com/tailcfg"
	"tailscale.com/tstest/integration/testcontrol"
	"tailscale.com/types/key"
	"tailscale.com/types/logger"
)

// host is the address of all servers.
const host = "127.0.0.1"

// network is the infrastructure of tailscale's nodes, on the loopback interface: tailscale's
// control server for tests, a DERP relay, through which nodes exchange their addresses, and a
// STUN server. They are idle while the load runs, and end with the process.
type network struct {
	control *httptest.Server
	derp    *derpserver.Server
	relay   *httptest.Server
	stun    *net.UDPConn
}

// newNetwork starts the servers. If via is valid, the STUN server tells every node that its
// address is via, as for a node behind a NAT that forwards from there. Otherwise it tells the
// actual address.
func newNetwork(via netip.AddrPort) (*network, error) {
	pc, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(host)})
	if err != nil {
		return nil, fmt.Errorf("listen for STUN: %w", err)
	}
	n := &network{stun: pc, derp: derpserver.New(key.NewNode(), logger.Discard)}
	go answer(pc, via)

	n.relay = httptest.NewUnstartedServer(derpserver.Handler(n.derp))
	n.relay.Config.ErrorLog = logger.StdLogger(logger.Discard)
	// DERP upgrades an HTTP/1.1 connection. An empty table disables HTTP/2.
	n.relay.Config.TLSNextProto = make(map[string]func(*http.Server, *tls.Conn, http.Handler))
	n.relay.StartTLS()

	control := &testcontrol.Server{
		DERPMap:   n.derpMap(),
		DNSConfig: &tailcfg.DNSConfig{Proxied: true},
		Logf:      logger.Discard,
	}
	n.control = httptest.NewUnstartedServer(control)
	n.control.Config.ErrorLog = logger.StdLogger(logger.Discard)
	control.HTTPTestServer = n.control
	n.control.Start()
	return n, nil
}

// derpMap has one region with one relay, which is also the STUN server.
func (n *network) derpMap() *tailcfg.DERPMap {
	return &tailcfg.DERPMap{Regions: map[int]*tailcfg.DERPRegion{1: {
		RegionID: 1, RegionCode: "bench",
		Nodes: []*tailcfg.DERPNode{{
			Name: "1a", RegionID: 1, HostName: host, IPv4: host, IPv6: "none",
			DERPPort: n.relay.Listener.Addr().(*net.TCPAddr).Port,
			STUNPort: n.stun.LocalAddr().(*net.UDPAddr).Port, STUNTestIP: host,
			InsecureForTests: true, // its certificate is httptest's
		}},
	}}}
}

// answer answers binding requests.
func answer(pc *net.UDPConn, via netip.AddrPort) {
	packet := make([]byte, 1500)
	for {
		n, from, err := pc.ReadFromUDPAddrPort(packet)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		id, parseErr := stun.ParseBindingRequest(packet[:n])
		if err != nil || parseErr != nil {
			continue
		}
		at := via
		if !at.IsValid() {
			at = from
		}
		_, _ = pc.WriteToUDPAddrPort(stun.Response(id, at), from) // the node will retry
	}
}

// relayed returns the number of bytes that nodes have sent through the relay.
func (n *network) relayed() int64 {
	return n.derp.ExpVar(false).(*metrics.Set).Get("bytes_received").(*expvar.Int).Value()
}
