package discovery_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/discovery"
	"github.com/postern-dev/postern/discovery/portmap"
	"github.com/postern-dev/postern/discovery/portmap/faketest"
	"github.com/postern-dev/postern/testenv/simnet"
)

// TestAMappedPortIsHeldAgainstWhatServersSee has a router that lists a mapping. Whether packets
// get through depends on the simulated NAT, which is independent of it.
func TestAMappedPortIsHeldAgainstWhatServersSee(t *testing.T) {
	const outer = "198.51.100.7:51820"
	for _, c := range []struct {
		name     string
		nat      func() simnet.Behaviour
		servers  []string
		external string
		want     portmap.State
		proof    portmap.Proof
		hint     string
	}{
		{"it comes through", simnet.FullCone, []string{stun1, behaviour1}, "198.51.100.7", portmap.StateMapped, portmap.ProofInbound, ""},
		{"nothing comes through", simnet.PortRestricted, []string{stun1, behaviour1}, "198.51.100.7", portmap.StateUseless, "", "nothing from outside comes through"},
		{"nobody can test it", simnet.PortRestricted, []string{stun1, stun2}, "198.51.100.7", portmap.StateMapped, portmap.ProofSTUN, ""},
		{"no STUN server", simnet.PortRestricted, nil, "198.51.100.7", portmap.StateMapped, portmap.ProofNone, ""},
		{"another NAT", simnet.PortRestricted, []string{stun1}, "203.0.113.77", portmap.StateUseless, "", "STUN servers see this gateway at 198.51.100.7"},
		{"carrier-grade NAT", simnet.PortRestricted, nil, "100.64.0.9", portmap.StateUseless, "", "the router's own address 100.64.0.9 is private"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inRoutedWorld(t, c.nat(), c.external, c.servers, func(t *testing.T, a *discovery.Agent, r *faketest.Router) {
				if err := a.WaitGathered(t.Context()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(12 * time.Minute) // virtual: a dead mapping is recreated twice by then
				synctest.Wait()
				s := a.Snapshot()
				if s.PortMapping.State != c.want || s.PortMapping.Proof != c.proof {
					t.Errorf("got %s with proof %q (%s), want %s with %q", s.PortMapping.State, s.PortMapping.Proof, s.PortMapping.Err, c.want, c.proof)
				}
				got := addrsOf(s.Candidates, discovery.SourcePortmap)
				if want := c.want == portmap.StateMapped; slices.Equal(got, []string{outer}) != want {
					t.Errorf("candidates of the router: %v", got)
				}
				hints := strings.Join(discovery.Hints(s), "\n")
				if !strings.Contains(hints, c.hint) {
					t.Errorf("hints %q, want %q in them", hints, c.hint)
				}
				problem := slices.ContainsFunc(s.Problems, func(p discovery.Problem) bool { return p.Source == discovery.SourcePortmap })
				if problem != (c.hint != "") {
					t.Errorf("problems %+v", s.Problems)
				}
				before := r.Requests("PCP ANNOUNCE")
				a.Refresh(t.Context())
				if r.Requests("PCP ANNOUNCE") == before {
					t.Error("a refresh did not ask the router")
				}
			})
		})
	}
}

// inRoutedWorld runs f in virtual time with an agent that asks a router for a port.
func inRoutedWorld(t *testing.T, nat simnet.Behaviour, external string, servers []string, f func(*testing.T, *discovery.Agent, *faketest.Router)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{net: simnet.New(simnet.Options{Seed: 1})}
		defer w.net.Close()
		w.addServers(t)
		defer func() {
			for _, s := range w.servers {
				_ = s.Close()
			}
		}()
		defer w.addTwoAddressServer(t)()
		w.addHost(t, &nat)
		conn, err := w.host.ListenUDP(listenPort)
		if err != nil {
			t.Fatal(err)
		}
		r := faketest.New(faketest.Options{
			Addr: netip.MustParseAddr("192.168.1.1"), Client: w.host.Addrs()[0], External: netip.MustParseAddr(external), PCP: true,
		})
		defer r.Close()
		var agent *discovery.Agent
		port := func() uint16 { return listenPort }
		m, err := portmap.New(portmap.Options{
			Router: netip.MustParseAddr("192.168.1.1"), Port: port, Dial: r.Dial, ListenPacket: r.ListenPacket,
			Changed: func() { agent.PortMappingChanged() },
		})
		if err != nil {
			t.Fatal(err)
		}
		agent, err = discovery.New(discovery.Options{
			Send: func(p []byte, to netip.AddrPort) error {
				_, err := conn.WriteToUDPAddrPort(p, to)
				return err
			},
			Port: port, HostAddrs: func() ([]netip.Addr, error) { return w.host.Addrs(), nil },
			STUNServers: servers, PortMapper: m,
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { receive(conn, agent) })
		for _, run := range []func(context.Context) error{agent.Run, m.Run} {
			running.Go(func() {
				if err := run(ctx); !errors.Is(err, context.Canceled) {
					t.Errorf("Run: got %v, want context.Canceled", err)
				}
			})
		}
		f(t, agent, r)
		cancel()
		_ = conn.Close()
		running.Wait()
	})
}
