//go:build linux && e2e

package e2e

import (
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
)

// Limits for faults: how long a running stream may stall, and how long it is observed after the
// fault, since a stall may begin later than the fault.
const (
	repairWithin  = 10 * time.Second
	upgradeWithin = 2 * time.Second
	observed      = repairWithin + 5*time.Second
	// upgradeBy bounds the return from the relay to a direct path that works again: it is tried
	// after 5 s and 60 s on the relay, with some rest between.
	upgradeBy = 100 * time.Second
)

// watch waits while the stream must continue.
func (s *stream) watch(d time.Duration) {
	s.t.Helper()
	select {
	case <-time.After(d):
	case <-s.t.Context().Done():
		s.t.Fatal(s.t.Context().Err())
	}
}

// fault is an event that happens to a pair while a stream runs from right to left.
type fault struct {
	name        string
	left, right access
	ways        ways
	before      string // initial kind of path
	do          func(s *sites)
}

// Faults that end by themselves or that the gateways work around: the stream survives and stalls
// for at most 10 s.
var faults = []fault{
	{
		name: "NAT rebinding", left: dial, right: portRestricted, before: api.PathDirect,
		do: func(s *sites) { s.right.nat.Rebind(30000, 30999) },
	},
	{
		name: "NAT rebinding, both behind NATs", left: portRestricted, right: portRestricted, before: api.PathDirect,
		do: func(s *sites) { s.right.nat.Rebind(30000, 30999) },
	},
	{
		name: "NAT forgets, on the relay", left: symmetric, right: symmetric, before: api.PathRelay,
		do: func(s *sites) { s.right.nat.Restart() },
	},
	{
		name: "the NATed side gets another public address", left: dial, right: portRestricted, before: api.PathDirect,
		do: func(s *sites) { s.right.nat.ChangeWANAddress(netip.MustParseAddr("198.51.100.77")) },
	},
	{
		name: "the NATed side gets another private address", left: dial, right: portRestricted, before: api.PathDirect,
		do: func(s *sites) { s.right.host.ChangeAddress("eth0", netip.MustParseAddr("192.168.8.9")) },
	},
	{
		name: "the public side gets another address", left: dial, right: portRestricted, before: api.PathDirect,
		do: func(s *sites) { s.left.host.ChangeAddress("eth0", netip.MustParseAddr("203.0.113.77")) },
	},
	{
		name: "another public address, on the relay", left: symmetric, right: symmetric, before: api.PathRelay,
		do: func(s *sites) { s.right.nat.ChangeWANAddress(netip.MustParseAddr("198.51.100.77")) },
	},
	{
		name: "one of two relays restarts", left: symmetric, right: symmetric, ways: ways{second: true}, before: api.PathRelay,
		do: func(s *sites) { s.relay.Stop(); s.relay.Start() },
	},
	{
		name: "the other of two relays restarts", left: symmetric, right: symmetric, ways: ways{second: true}, before: api.PathRelay,
		do: func(s *sites) { s.second.Stop(); s.second.Start() },
	},
	{
		name: "one of two relays is gone", left: symmetric, right: symmetric, ways: ways{second: true}, before: api.PathRelay,
		do: func(s *sites) { s.relay.Stop() },
	},
	{
		name: "the relay restarts under a direct path", left: dial, right: portRestricted, before: api.PathDirect,
		do: func(s *sites) { s.relay.Stop(); s.relay.Start() },
	},
	{
		name: "the process sleeps for 20 s and wakes", left: dial, right: portRestricted, before: api.PathDirect,
		do: func(s *sites) { s.right.sleep(20 * time.Second) },
	},
}

// sleep suspends the gateway's process for a while, like a suspended machine.
func (x *site) sleep(d time.Duration) {
	x.t.Helper()
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
		if err := x.proc.Signal(sig); err != nil {
			x.t.Fatal(err)
		}
		if sig == syscall.SIGSTOP {
			select {
			case <-time.After(d):
			case <-x.t.Context().Done():
				x.t.Fatal(x.t.Context().Err())
			}
		}
	}
}

func TestStreamsSurviveFaults(t *testing.T) {
	t.Parallel()
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			onTime(t, func(late lateness) {
				s := started(t, f.left, f.right, f.ways)
				traffic := openStream(within(t, patience), t, s.right, s.left)
				traffic.late = late
				s.awaitPath(f.before, patience)
				f.do(s)
				traffic.mark()
				traffic.watch(observed)
				gap := traffic.check(repairWithin)
				t.Logf("the stream rested for %v", gap.Round(time.Millisecond))
				s.report()
			})
		})
	}
}

// report logs the status of both sides if the test has failed.
func (s *sites) report() {
	s.t.Helper()
	if s.t.Failed() {
		s.t.Logf("left: %s\nright: %s", s.describe(s.left), s.describe(s.right))
	}
}

// blocked is a fault of only the direct path. The relay takes over, and the direct path returns
// once the fault is over.
type blocked struct {
	name    string
	matches func(s *sites) []string // what the core drops
}

// wireGuardData is nftables' match for UDP datagrams whose payload begins like WireGuard's
// transport data.
const wireGuardData = " ip protocol udp @th,64,8 4"

var blockedPaths = []blocked{
	{"nothing passes", func(s *sites) []string {
		return []string{direct(s.left, s.right), direct(s.right, s.left)}
	}},
	{"nothing passes to the NATed side", func(s *sites) []string { return []string{direct(s.left, s.right)} }},
	{"nothing passes to the public side", func(s *sites) []string { return []string{direct(s.right, s.left)} }},
	{"probes pass, data does not", func(s *sites) []string {
		return []string{direct(s.left, s.right) + wireGuardData, direct(s.right, s.left) + wireGuardData}
	}},
}

func TestTheRelayTakesOverAndGivesBack(t *testing.T) {
	t.Parallel()
	for _, b := range blockedPaths {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			onTime(t, func(late lateness) {
				s := started(t, dial, portRestricted, ways{})
				traffic := openStream(within(t, patience), t, s.right, s.left)
				traffic.late = late
				s.awaitPath(api.PathDirect, patience)
				traffic.mark()
				filter := s.core.Drop(b.matches(s)...)
				// One direction may still be direct while the other is relayed, so only the
				// stream is checked.
				traffic.watch(observed)
				down := traffic.check(repairWithin)
				if n, err := filter.Dropped(within(t, patience)); err != nil || n.Packets == 0 {
					t.Errorf("the filter dropped %d packets, %v", n.Packets, err)
				}
				s.right.awaitPath(within(t, patience), s.left.name, api.PathRelay)
				filter.Remove()
				traffic.mark()
				took := s.awaitPath(api.PathDirect, upgradeBy)
				traffic.watch(upgradeWithin)
				up := traffic.check(upgradeWithin)
				t.Logf("down to the relay the stream rested for %v; up again after %v, it rested for %v",
					down.Round(time.Millisecond), took.Round(100*time.Millisecond), up.Round(time.Millisecond))
				s.report()
			})
		})
	}
}

// TestOneWayFromTheStart connects two gateways whose direct path only passes datagrams in one
// direction.
func TestOneWayFromTheStart(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		match func(s *sites) string
	}{
		{"to the NATed side nothing passes", func(s *sites) string { return direct(s.left, s.right) }},
		{"to the public side nothing passes", func(s *sites) string { return direct(s.right, s.left) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newSites(t, dial, portRestricted, ways{})
			s.core.Drop(c.match(s))
			s.start()
			start := time.Now()
			s.enrol(s.left, s.right)
			openStream(within(t, patience), t, s.right, s.left)
			t.Logf("a stream runs %v after the start of join", time.Since(start).Round(100*time.Millisecond))
			s.right.awaitPath(within(t, patience), s.left.name, api.PathRelay)
		})
	}
}

// TestSessionsResumeAfterARestartByRelay restarts gateways that are only connected by a relay,
// and some that had to punch. New streams run again soon, without any action at the other side.
func TestSessionsResumeAfterARestartByRelay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name        string
		left, right access
		kind        string
		sig         syscall.Signal
	}{
		{"on the relay, SIGKILL", symmetric, symmetric, api.PathRelay, syscall.SIGKILL},
		{"on the relay, SIGTERM", symmetric, symmetric, api.PathRelay, syscall.SIGTERM},
		{"both behind NATs, SIGKILL", portRestricted, portRestricted, api.PathDirect, syscall.SIGKILL},
		{"the public side, SIGKILL", portRestricted, dial, api.PathDirect, syscall.SIGKILL},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			onTime(t, func(late lateness) {
				s := started(t, c.left, c.right, ways{})
				s.offerBack(s.left, s.right)
				s.awaitPath(c.kind, patience)
				openStream(within(t, patience), t, s.right, s.left)
				s.right.stop(c.sig)
				start := time.Now()
				s.right.launch()
				openStream(within(t, patience), t, s.right, s.left)
				there := time.Since(start)
				openStream(within(t, patience), t, s.left, s.right)
				back := time.Since(start)
				t.Logf("streams of the restarted side run after %v, those to it after %v", there.Round(time.Millisecond), back.Round(time.Millisecond))
				late("until both directions work again", back, repairWithin)
				s.right.waitReady()
				s.awaitPath(c.kind, patience)
				s.report()
			})
		})
	}
}
