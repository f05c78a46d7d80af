package path_test

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/discovery/stunwire"
	"github.com/postern-dev/postern/tunnel/peer"
)

// A machine gets events and the time, and returns what to do. Here the clock is a variable, and
// the peer answers after 20 ms.
func ExampleMachine() {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	cloud := netip.MustParseAddrPort("203.0.113.8:51820")

	m := path.New(path.Options{Low: true, Boot: 1})
	m.SetRemote(now, []path.Candidate{{Addr: cloud, Source: path.SourceAdvertised}}, false)
	actions, _ := m.Poll(now)
	for i, probe := range actions.Probes {
		fmt.Println("probe", probe.Path)
		tx := stunwire.TxID{byte(i)}
		m.Sent(now, probe.ID, tx, nil)
		m.Answered(now.Add(20*time.Millisecond), tx, peer.Direct(cloud), netip.MustParseAddrPort("198.51.100.7:51820"))
	}
	actions, next := m.Poll(now.Add(20 * time.Millisecond))
	fmt.Println("route", actions.Routing.Selected)
	fmt.Println("ask again:", next.After(now))
	for _, c := range m.Snapshot().Candidates {
		fmt.Println(c.Path, c.State, c.RTT)
	}
	// Output:
	// probe 203.0.113.8:51820
	// route 203.0.113.8:51820
	// ask again: true
	// 203.0.113.8:51820 selected 20ms
}
