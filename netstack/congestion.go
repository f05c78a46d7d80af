package netstack

import (
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
)

const (
	// shortRTT is the round-trip time below which a connection uses Reno's congestion control from
	// the start instead of CUBIC's. RFC 9438 §4.3 wants CUBIC to act as Reno there; gVisor's does
	// not once losses have made its window small, because it drops fractions of a packet from its
	// growth. On longer paths it fills bottlenecks better (README, measurements).
	shortRTT = 5 * time.Millisecond
	// smallWindow is the window in packets at which Reno replaces a CUBIC that losses have made
	// that small, for the same reason. With 1 % loss Reno stays at 12 packets on average; a
	// bottleneck of 10 Mbit/s with 40 ms and an equal queue never has fewer than 50.
	smallWindow = 16
	// lookEvery is the least time between two looks at the window, and smallLooks how many looks in
	// a row must find new losses and a small window. An outage shrinks the window as much as many
	// losses do, but then it grows again.
	lookEvery  = 250 * time.Millisecond
	smallLooks = 3
	// boundless is a threshold below a new connection's and above all others.
	boundless = 1 << 30
)

// control is a connection's congestion control.
type control uint8

const (
	controlCUBIC control = iota
	controlReno          // gVisor's
	controlFlow          // package sender's, below gVisor, whose window is to grow without bound
)

// congestion chooses a connection's congestion control in gVisor: Reno on short paths and where
// losses are so frequent that gVisor's CUBIC falls behind it; else CUBIC. One writer at a time
// calls its methods.
type congestion struct {
	ep      tcpip.Endpoint
	control control
	small   int       // looks that found further losses and a small window, in a row
	next    time.Time // of the next look
	// Found by the last look, in packets.
	window, threshold uint32
}

// newCongestion starts with a congestion control.
func newCongestion(ep tcpip.Endpoint, with control) *congestion {
	c := &congestion{ep: ep, control: with}
	if with != controlCUBIC {
		c.restart()
	}
	return c
}

// restart switches to Reno: gVisor then has a new connection's window and threshold, and finds both
// by slow start.
func (c *congestion) restart() {
	reno := tcpip.CongestionControlOption("reno")
	_ = c.ep.SetSockOpt(&reno) // cannot fail on a TCP endpoint
}

// look switches to Reno if losses have kept the window small, and lets a flow's window grow again
// if a timeout has bounded it.
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

// lossy takes one look into account. It returns false during recovery, at the end of which gVisor
// uses the threshold as the window: a new connection's is boundless.
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
