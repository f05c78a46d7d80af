package netstack

import (
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
)

func TestRenoTakesOverWhereLossesKeepTheWindowSmall(t *testing.T) {
	const wide, small = 100, 8 // packets
	open, recovery := tcpip.Open, tcpip.SACKRecovery
	type look struct {
		threshold uint32
		state     tcpip.CongestionControlState
	}
	for _, c := range []struct {
		name  string
		looks []look
		want  int // the look that finds a lossy path, from 1; 0 if none does
	}{
		{"a new connection", []look{{1<<32 - 1, open}, {1<<32 - 1, open}, {1<<32 - 1, open}}, 0},
		{"losses on a wide path", []look{{wide, open}, {wide, recovery}, {wide, open}}, 0},
		{"a small window that lasts", []look{{small, open}, {small, recovery}, {small, open}}, 3},
		{"one that doesn't", []look{{small, open}, {small, open}, {wide, open}, {small, open}, {small, open}}, 0},
		{"not while losses are being repaired", []look{{small, open}, {small, open}, {small, recovery}, {small, tcpip.RTORecovery}, {small, open}}, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			var cc congestion
			got := 0
			for i, l := range c.looks {
				if cc.lossy(tcpip.TCPInfoOption{SndSsthresh: l.threshold, CcState: l.state}) {
					got = i + 1
					break
				}
			}
			if got != c.want {
				t.Errorf("found a lossy path at look %d, want %d", got, c.want)
			}
		})
	}
}

func TestBuffersFollowTheRoundTripTime(t *testing.T) {
	defaults := Options{TCPSendBuffer: DefaultTCPBuffer, TCPReceiveBuffer: DefaultTCPBuffer}
	for _, c := range []struct {
		name    string
		options Options
		rtt     time.Duration
		send    int
		receive int
	}{
		{"a short path", defaults, time.Millisecond, shortPathBuffer, shortPathBuffer},
		{"two windows of 1.2 Gbit/s", defaults, 50 * time.Millisecond, 15e6, 15e6},
		{"no more than the bound", defaults, 200 * time.Millisecond, DefaultTCPBuffer, DefaultTCPBuffer},
		{"an unknown one", defaults, 0, DefaultTCPBuffer, DefaultTCPBuffer},
		{"lesser bounds", Options{TCPSendBuffer: 1 << 20, TCPReceiveBuffer: 2 << 20}, time.Second, 1 << 20, 2 << 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			if send, receive := newMemory(c.options).most(c.rtt); send != c.send || receive != c.receive {
				t.Errorf("got %d to send and %d to receive, want %d and %d", send, receive, c.send, c.receive)
			}
		})
	}
}
