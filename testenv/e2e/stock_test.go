//go:build linux && e2e

package e2e

import (
	"crypto/rand"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/testenv/netlab"
	"github.com/postern-dev/postern/tunnel/peer"
)

// stockAddr is the inner address of a stock peer, a unique local address, as is common.
const stockAddr = "fd7a:115c:a1e0::2"

// stock is a host with plain WireGuard: wireguard-go with a TUN device, configured with wg and ip
// as its users do.
type stock struct {
	t     *testing.T
	host  *netlab.Host
	key   peer.PrivateKey
	iface string
}

// newKey returns a new private key.
func newKey(t *testing.T) peer.PrivateKey {
	t.Helper()
	key, err := peer.NewPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// newStock creates a device with a key and an inner address, without peers.
func newStock(t *testing.T, host *netlab.Host, key peer.PrivateKey, inner string) *stock {
	t.Helper()
	var id [4]byte
	if _, err := rand.Read(id[:]); err != nil {
		t.Fatal(err)
	}
	// The name is also that of the control socket, which namespaces share.
	s := &stock{t: t, host: host, key: key, iface: fmt.Sprintf("wg%x", id)}
	t.Cleanup(func() { os.Remove(filepath.Join("/run/wireguard", s.iface+".sock")) })
	p := host.Start(netlab.Command{Args: []string{"wireguard-go", "--foreground", s.iface}})
	eventually(within(t, patience), t, "wireguard-go answers", func() (bool, string) {
		select {
		case <-p.Done():
			t.Fatalf("wireguard-go ended: %s%s", p.Stdout(), p.Stderr())
		default:
		}
		_, err := host.Run(within(t, patience), "wg", "show", s.iface)
		return err == nil, fmt.Sprint(err)
	})
	keyFile := filepath.Join(tempDir(t), "key")
	if err := os.WriteFile(keyFile, []byte(key.Base64()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.run("wg", "set", s.iface, "private-key", keyFile)
	s.run("ip", "address", "add", inner+"/128", "dev", s.iface, "nodad")
	s.run("ip", "link", "set", s.iface, "up", "mtu", "1420")
	return s
}

func (s *stock) run(args ...string) string {
	s.t.Helper()
	out, err := s.host.Run(within(s.t, patience), args...)
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// connect adds a peer and routes its addresses to it.
func (s *stock) connect(publicKey, endpoint string, addrs ...string) {
	s.t.Helper()
	s.run("wg", "set", s.iface, "peer", publicKey, "endpoint", endpoint, "allowed-ips", strings.Join(addrs, ","), "persistent-keepalive", "5")
	s.route(addrs...)
}

func (s *stock) route(addrs ...string) {
	s.t.Helper()
	for _, a := range addrs {
		s.run("ip", "-6", "route", "add", a, "dev", s.iface)
	}
}

// listen sets the device's port.
func (s *stock) listen(port int) { s.run("wg", "set", s.iface, "listen-port", fmt.Sprint(port)) }

// handshaken reports whether a handshake with the only peer has completed.
func (s *stock) handshaken() bool {
	s.t.Helper()
	fields := strings.Fields(s.run("wg", "show", s.iface, "latest-handshakes"))
	return len(fields) == 2 && fields[1] != "0"
}

// curl fetches a URL as the stock peer's user does; code is the HTTP status, 0 if none.
func (s *stock) curl(args ...string) (body string, code int, err error) {
	s.t.Helper()
	all := append([]string{"curl", "-sS", "-g", "--max-time", "20", "-w", "\n%{http_code}"}, args...)
	p, err := netlab.Start(netlab.Command{Namespace: s.host.Namespace(), Args: all})
	if err != nil {
		s.t.Fatal(err)
	}
	defer p.Kill()
	exit, err := p.Wait(within(s.t, patience))
	if err != nil {
		s.t.Fatal(err)
	}
	if exit != 0 {
		return "", 0, fmt.Errorf("%s: exit code %d: %s", strings.Join(all, " "), exit, p.Stderr())
	}
	i := strings.LastIndexByte(p.Stdout(), '\n')
	return p.Stdout()[:i], atoi(s.t, p.Stdout()[i+1:]), nil
}

// TestStockPeersMeetAcrossTheNAT shows that the world lets WireGuard through, without our
// program. So failures elsewhere are not the world's fault.
func TestStockPeersMeetAcrossTheNAT(t *testing.T) {
	w := newWorld(t)
	a, b := newStock(t, w.cloud, newKey(t), "2001:db8:7::1"), newStock(t, w.edge, newKey(t), stockAddr)
	a.listen(gatewayPort)
	a.run("wg", "set", a.iface, "peer", b.key.Public().String(), "allowed-ips", stockAddr+"/128")
	a.route(stockAddr)
	b.connect(a.key.Public().String(), fmt.Sprintf("%s:%d", cloudAddr, gatewayPort), "2001:db8:7::1/128")
	l, err := w.cloud.Listen(t.Context(), netip.MustParseAddrPort("[2001:db8:7::1]:8000"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	eventually(within(t, patience), t, "both have shaken hands", func() (bool, string) { return a.handshaken() && b.handshaken(), "not yet" })
	c, err := w.edge.DialContext(within(t, patience), "tcp", "[2001:db8:7::1]:8000")
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	traffic, err := w.nat.Traffic(within(t, patience))
	if err != nil || traffic.TCPOut.Packets != 0 || traffic.UDPOut.Packets == 0 {
		t.Errorf("across the NAT: %+v, %v; want UDP alone", traffic, err)
	}
}

// stockWorld is a world with cloud running and a stock peer, "laptop", behind the NAT.
type stockWorld struct {
	*world
	cloud  *gateway
	laptop *stock
	addr   string // cloud's overlay address
}

func newStockWorld(t *testing.T, allow []string, configure ...func(*api.GatewaySpec)) *stockWorld {
	t.Helper()
	w := newWorld(t)
	blobServer(t, w.cloud)
	laptop := newStock(t, w.edge, newKey(t), stockAddr)
	cloud := newGateway(t, w.cloud, "cloud", append(configure, offerBlob, func(s *api.GatewaySpec) {
		s.Peers = append(s.Peers, api.Peer{
			Name: "laptop", PublicKey: laptop.key.Public().String(), Stock: true,
			AllowedIPs: []string{stockAddr + "/128"}, Allow: allow,
		})
	})...).start()
	st := cloud.status().Gateway
	laptop.connect(st.PublicKey, fmt.Sprintf("%s:%d", cloudAddr, gatewayPort), st.Address+"/128")
	return &stockWorld{world: w, cloud: cloud, laptop: laptop, addr: st.Address}
}

func TestStockPeerFetchesFromANamedService(t *testing.T) {
	w := newStockWorld(t, []string{blobService})
	body, code, err := w.laptop.curl(fmt.Sprintf("http://[%s]:%d/", w.addr, blobPort))
	if err != nil || code != 200 || !strings.Contains(body, "blob of cloud") {
		t.Errorf("curl: got %q, status %d, %v", body, code, err)
	}
	if !w.laptop.handshaken() {
		t.Error("wg shows no handshake")
	}
	p := w.cloud.waitConnected("laptop")
	if !p.Stock || p.Path.Remote != fmt.Sprintf("%s:%s", natAddr, portOf(p.Path.Remote)) {
		t.Errorf("cloud sees %+v, want a stock peer at %s", p, natAddr)
	}
}

func portOf(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }

func TestStockPeerReachesNothingByDefault(t *testing.T) {
	w := newStockWorld(t, nil)
	_, _, err := w.laptop.curl(fmt.Sprintf("http://[%s]:%d/", w.addr, blobPort))
	// curl's exit code 7: the connection was refused at once, instead of after 20 s.
	if err == nil || !strings.Contains(err.Error(), "exit code 7") {
		t.Errorf("curl: got %v, want a refused connection", err)
	}
	w.cloud.waitLog("audit", "refuse", "laptop")
}

// TestNoTransitBetweenPeers has a stock peer send to another peer's overlay address through
// cloud, with routes and AllowedIPs that would permit it.
func TestNoTransitBetweenPeers(t *testing.T) {
	t.Parallel()
	w := newStockWorld(t, []string{blobService})
	other := newGateway(t, w.third, "other", offerBlob).start()
	blobServer(t, w.third)
	enrol(w.cloud, other, nil, []string{"--allow", blobService})
	target := other.status().Gateway.Address
	st := w.cloud.status().Gateway
	w.laptop.connect(st.PublicKey, fmt.Sprintf("%s:%d", cloudAddr, gatewayPort), target+"/128")

	body, code, err := w.laptop.curl("--max-time", "4", fmt.Sprintf("http://[%s]:%d/", target, blobPort))
	if err == nil {
		t.Errorf("laptop reached another peer through cloud: %q, status %d", body, code)
	}
	w.cloud.waitLog("audit", "refuse", target)
	if n, _ := w.cloud.metric("postern_netstack_dropped_packets_total"); n == 0 {
		t.Error("postern_netstack_dropped_packets_total counts nothing")
	}
}
