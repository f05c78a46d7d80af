package gateway_test

import (
	"net/netip"
	"slices"
	"sync"
	"testing"

	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun/tuntest"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/postern-dev/postern/testenv/simnet"
	"github.com/postern-dev/postern/tunnel/peer"
	"github.com/postern-dev/postern/tunnel/uapi"
	"github.com/postern-dev/postern/tunnel/underlay"
)

// rawStranger is a plain WireGuard device that sends whatever packets it is given to
// one gateway, wherever they are for.
type rawStranger struct {
	tun *tuntest.ChannelTUN

	mu  sync.Mutex
	got []netip.Addr // sources of what came
}

func newRawStranger(t *testing.T, host *simnet.Host, key peer.PrivateKey, to peer.PublicKey, at netip.AddrPort) *rawStranger {
	t.Helper()
	r := &rawStranger{tun: tuntest.NewChannelTUN()}
	bind := underlay.NewPacket(func(port uint16) (underlay.PacketConn, error) { return host.ListenUDP(port) }, underlay.Options{})
	dev := device.NewDevice(r.tun.TUN(), bind, device.NewLogger(device.LogLevelSilent, ""))
	var reader sync.WaitGroup
	reader.Go(func() { r.read(dev.Wait()) })
	t.Cleanup(func() {
		dev.Close()
		reader.Wait()
	})
	port := uint16(0)
	text, err := uapi.Config{PrivateKey: &key, ListenPort: &port, Peers: []uapi.PeerConfig{{
		PublicKey: to, Endpoint: at.String(), AllowedIPs: []netip.Prefix{netip.MustParsePrefix("::/0")},
	}}}.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	if err := dev.IpcSet(string(text)); err != nil {
		t.Fatal(err)
	}
	if err := dev.Up(); err != nil {
		t.Fatal(err)
	}
	return r
}

// read takes what comes until the device ends.
func (r *rawStranger) read(ended <-chan struct{}) {
	for {
		select {
		case packet := <-r.tun.Inbound:
			if len(packet) >= header.IPv6MinimumSize {
				r.mu.Lock()
				r.got = append(r.got, netip.AddrFrom16(header.IPv6(packet).SourceAddress().As16()))
				r.mu.Unlock()
			}
		case <-ended:
			return
		}
	}
}

// send encrypts a packet to the gateway.
func (r *rawStranger) send(packet []byte) { r.tun.Outbound <- packet }

// received reports whether a packet came from an overlay address.
func (r *rawStranger) received(from netip.Addr) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.got, from)
}
