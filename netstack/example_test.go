package netstack_test

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"sync"

	"golang.zx2c4.com/wireguard/tun"

	"github.com/postern-dev/postern/netstack"
)

// Two stacks whose devices are joined back to back, where a gateway has WireGuard between
// them. One asks, the other decides before it answers the SYN.
func Example() {
	edge, cloud := netip.MustParseAddr("fd00::ed9e"), netip.MustParseAddr("fd00::c10d")
	server, err := netstack.New(netstack.Options{
		Addresses: []netip.Addr{cloud},
		OnTCP: func(in *netstack.Incoming) {
			if in.Local().Port() != 80 {
				in.Refuse()
				return
			}
			c, err := in.Accept(context.Background())
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "hello "+in.Remote().Addr().String())
			_ = c.Close()
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	client, err := netstack.New(netstack.Options{Addresses: []netip.Addr{edge}})
	if err != nil {
		fmt.Println(err)
		return
	}
	var wires sync.WaitGroup
	wires.Go(func() { wire(server.Device(), client.Device()) })
	wires.Go(func() { wire(client.Device(), server.Device()) })

	c, err := client.DialTCP(context.Background(), netip.AddrPortFrom(cloud, 80))
	if err != nil {
		fmt.Println(err)
		return
	}
	text, err := io.ReadAll(c)
	fmt.Println(string(text), err)
	_ = c.Close()
	_, err = client.DialTCP(context.Background(), netip.AddrPortFrom(cloud, 22))
	fmt.Println(err)

	_ = client.Close()
	_ = server.Close()
	wires.Wait()
	// Output:
	// hello fd00::ed9e <nil>
	// dial tcp [fd00::c10d]:22: connection refused
}

// wire moves packets from one device to another until it is closed.
func wire(from, to tun.Device) {
	const offset = 16 // room for WireGuard's header
	bufs, sizes := make([][]byte, from.BatchSize()), make([]int, from.BatchSize())
	for i := range bufs {
		bufs[i] = make([]byte, offset+netstack.DefaultMTU)
	}
	for {
		n, err := from.Read(bufs, sizes, offset)
		if err != nil {
			return
		}
		packets := make([][]byte, n)
		for i := range packets {
			packets[i] = bufs[i][:offset+sizes[i]]
		}
		if _, err := to.Write(packets, offset); err != nil {
			return
		}
	}
}
