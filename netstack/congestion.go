package netstack

import (
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
)

const (
	// shortRTT is the round-trip time below which a connection uses Reno's congestion
	// control from the start instead of CUBIC's. RFC 9438 §4.3 wants CUBIC to do as Reno
	// there; gVisor's doesn't once losses have made its window small, because it drops
	// fractions of a packet from its growth. On longer paths it fills bottlenecks better
	// (README, measurements).
	shortRTT = 5 * time.Millisecond
	// smallWindow is the window in packets to which losses must have brought CUBIC for Reno
	// to take over, for the same reason. 1 % of loss keeps Reno at 12 packets on average;
	// a bottleneck of 10 Mbit/s with 40 ms and a queue of as much never has fewer than 50.
	smallWindow = 16
	// lookEvery is how often the window is looked at, at most, and smallLooks how often
	// further losses must have been found since it was last larger: an outage makes it as
	// small as many losses do, but then it grows.
	lookEvery  = 250 * time.Millisecond
	smallLooks = 3
	// boundless is below the threshold of a new connection, and above all others.
	boundless = 1 << 30
)

// control is a connection's congestion control.
type control uint8

const (
	controlCUBIC control = iota
	controlReno          // gVisor's
	controlFlow          // package sender's, below gVisor, whose window is to grow without an end
)

// congestion chooses a connection's congestion control in gVisor: Reno on short paths, and where
// losses are so frequent that gVisor's CUBIC falls behind it; else CUBIC. Its methods are
// called by one writer at a time.
type congestion struct {
	ep      tcpip.Endpoint
	control control
	small   int       // looks that found further losses and a small window, in a row
	next    time.Time // of the next look
	// What the last look found, in packets.
	window, threshold uint32
}

// newCongestion begins with a congestion control.
func newCongestion(ep tcpip.Endpoint, with control) *congestion {
	c := &congestion{ep: ep, control: with}
	if with != controlCUBIC {
		c.restart()
	}
	return c
}

// restart begins with Reno: gVisor then has a new connection's window and threshold,
// and finds both by slow start.
func (c *congestion) restart() {
	reno := tcpip.CongestionControlOption("reno")
	_ = c.ep.SetSockOpt(&reno) // Cannot fail on a TCP endpoint.
}

// look has Reno take over where losses have kept the window small, and a flow's window grow again
// where a timeout has bounded it.
func (c *congestion) look(now time.Time) {
	if c.control == controlReno || now.Before(c.next) {
		return
	}
	c.next = now.Add(lookEvery)
	var info tcpip.TCPInfoOption
	if err := c.ep.GetSockOpt(&info); err != nil {
		return
	}
	switch {
	case c.control == controlFlow:
		if info.SndSsthresh < boundless && info.CcState == tcpip.Open {
			c.restart()
		}
	case c.lossy(info):
		c.control = controlReno
		c.restart()
	}
}

// lossy takes one look into account. It is false during recovery, at the end of which
// gVisor takes the threshold for the window: a new connection's is boundless.
func (c *congestion) lossy(info tcpip.TCPInfoOption) bool {
	lost := info.SndSsthresh != c.threshold || info.SndCwnd < c.window
	c.window, c.threshold = info.SndCwnd, info.SndSsthresh
	switch {
	case info.SndSsthresh > smallWindow || info.SndCwnd > smallWindow:
		c.small = 0
	case lost:
		c.small++
	}
	return c.small >= smallLooks && info.CcState == tcpip.Open
}
