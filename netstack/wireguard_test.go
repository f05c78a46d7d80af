package netstack

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/conn/bindtest"
	wireguard "golang.zx2c4.com/wireguard/device"

	"github.com/postern-dev/postern/tunnel/peer"
)

// newTunnel returns two stacks with WireGuard between them. endpointOf returns the address under
// which the other side reaches a device.
func newTunnel(t testing.TB, ba, bb conn.Bind, endpointOf func(*wireguard.Device) string) pair {
	t.Helper()
	a, err := New(Options{Addresses: []netip.Addr{a6, a4}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := New(Options{Addresses: []netip.Addr{b6, b4}})
	if err != nil {
		t.Fatal(err)
	}
	keyA, errA := peer.NewPrivateKey()
	keyB, errB := peer.NewPrivateKey()
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	log := &wireguard.Logger{Verbosef: wireguard.DiscardLogf, Errorf: wireguard.DiscardLogf}
	da := wireguard.NewDevice(a.Device(), ba, log)
	db := wireguard.NewDevice(b.Device(), bb, log)
	t.Cleanup(func() {
		var wg sync.WaitGroup
		wg.Go(da.Close) // Closes the stack with it.
		wg.Go(db.Close)
		wg.Wait()
		_ = a.Close()
		_ = b.Close()
	})
	set := func(d *wireguard.Device, own, other peer.PrivateKey, a6, a4 netip.Addr, endpoint string) {
		t.Helper()
		pub := other.Public()
		conf := fmt.Sprintf("private_key=%s\npublic_key=%s\nallowed_ip=%v/128\nallowed_ip=%v/32\n", own.Hex(), hex.EncodeToString(pub[:]), a6, a4)
		if endpoint != "" {
			conf += "endpoint=" + endpoint + "\n"
		}
		if err := d.IpcSet(conf); err != nil {
			t.Fatal(err)
		}
		if err := d.Up(); err != nil {
			t.Fatal(err)
		}
	}
	set(da, keyA, keyB, b6, b4, "")
	set(db, keyB, keyA, a6, a4, endpointOf(da))
	set(da, keyA, keyB, b6, b4, endpointOf(db))
	return pair{a, b}
}

// listenPort asks a device for its port.
func listenPort(d *wireguard.Device) string {
	conf, _ := d.IpcGet()
	for line := range strings.Lines(conf) {
		if port, ok := strings.CutPrefix(line, "listen_port="); ok {
			return "127.0.0.1:" + strings.TrimSpace(port)
		}
	}
	return ""
}

func TestTransferThroughWireGuard(t *testing.T) {
	binds := bindtest.NewChannelBinds()
	// A channel bind reaches its only counterpart under a fixed number.
	ends := map[conn.Bind]string{binds[0]: "127.0.0.1:2", binds[1]: "127.0.0.1:1"}
	p := newTunnel(t, binds[0], binds[1], func(d *wireguard.Device) string { return ends[d.Bind()] })
	if _, err := p.a.Ping(within(t), b6, 100); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i, at := range []netip.Addr{b6, b4} {
		client, server := p.connect(t, at)
		wg.Go(func() { transfer(t, client, server, transferSize/16, byte(20+i)) })
		wg.Go(func() { transfer(t, server, client, transferSize/16, byte(30+i)) })
	}
	wg.Wait()
}

// BenchmarkWireGuard moves 64 MB an iteration between two stacks over wireguard-go's own
// bind on loopback.
func BenchmarkWireGuard(b *testing.B) {
	for _, streams := range []int{1, 4} {
		b.Run(fmt.Sprintf("streams=%d", streams), func(b *testing.B) {
			p := newTunnel(b, conn.NewStdNetBind(), conn.NewStdNetBind(), listenPort)
			if _, err := p.a.Ping(within(b), b6, 100); err != nil {
				b.Fatal(err)
			}
			benchmarkTransfer(b, p, streams)
		})
	}
}
