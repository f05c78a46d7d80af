package stunserver_test

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/discovery/stunwire"
	"github.com/postern-dev/postern/testenv/simnet"
	"github.com/postern-dev/postern/testenv/simnet/stunserver"
)

func TestTheBehaviourServerAnswersFromWhereItIsAsked(t *testing.T) {
	a1, a2 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	at := func(a netip.Addr, port uint16) netip.AddrPort { return netip.AddrPortFrom(a, port) }
	for _, c := range []struct {
		name            string
		to              netip.AddrPort
		change          stunwire.Change
		from, otherAddr netip.AddrPort
	}{
		{"plain", at(a1, 3478), 0, at(a1, 3478), at(a2, 3479)},
		{"the other port", at(a1, 3478), stunwire.ChangePort, at(a1, 3479), at(a2, 3479)},
		{"the other address", at(a1, 3478), stunwire.ChangeAddress, at(a2, 3478), at(a2, 3479)},
		{"both", at(a1, 3478), stunwire.ChangeAddress | stunwire.ChangePort, at(a2, 3479), at(a2, 3479)},
		{"both, from the second", at(a2, 3479), stunwire.ChangeAddress | stunwire.ChangePort, at(a1, 3478), at(a1, 3478)},
		{"the mixed one", at(a2, 3478), 0, at(a2, 3478), at(a1, 3479)},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in := simnet.New(simnet.Options{})
				defer in.Close()
				host := func(name string, addrs ...netip.Addr) *simnet.Host {
					h, err := in.AddHost(simnet.HostOptions{Name: name, Addrs: addrs})
					if err != nil {
						t.Fatal(err)
					}
					return h
				}
				s, err := stunserver.ServeBehaviour(host("stun", a1, a2), at(a1, 3478), at(a2, 3479))
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				client, err := host("client", netip.MustParseAddr("192.0.2.9")).ListenUDP(7)
				if err != nil {
					t.Fatal(err)
				}
				defer client.Close()
				request, err := stunwire.Encode(&stunwire.Message{Class: stunwire.Request, TxID: stunwire.TxID{1}, Change: c.change}, nil)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := client.WriteToUDPAddrPort(request, c.to); err != nil {
					t.Fatal(err)
				}
				if err := client.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
					t.Fatal(err)
				}
				buf := make([]byte, stunwire.MaxSize)
				n, from, err := client.ReadFromUDPAddrPort(buf)
				if err != nil {
					t.Fatal(err)
				}
				m, err := stunwire.Parse(buf[:n])
				if err != nil {
					t.Fatal(err)
				}
				if from != c.from || m.Origin != c.from || m.Other != c.otherAddr || m.Mapped != netip.MustParseAddrPort("192.0.2.9:7") {
					t.Errorf("an answer from %v: %+v; want one from %v with other address %v", from, m, c.from, c.otherAddr)
				}
			})
		})
	}
}

func TestABehaviourServerNeedsTwoAddressesAndPorts(t *testing.T) {
	in := simnet.New(simnet.Options{})
	defer in.Close()
	h, err := in.AddHost(simnet.HostOptions{Name: "stun", Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}})
	if err != nil {
		t.Fatal(err)
	}
	for _, second := range []string{"192.0.2.1:3479", "192.0.2.2:3478", "192.0.2.2:3479"} {
		s, err := stunserver.ServeBehaviour(h, netip.MustParseAddrPort("192.0.2.1:3478"), netip.MustParseAddrPort(second))
		if err == nil {
			t.Errorf("%s: it starts", second)
			_ = s.Close()
		}
	}
}
