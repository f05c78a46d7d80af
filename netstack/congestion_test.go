package netstack

import (
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
)

func TestRenoTakesOverWhereLossesKeepTheWindowSmall(t *testing.T) {
	const none = 1<<32 - 1
	open, recovery := tcpip.Open, tcpip.SACKRecovery
	type look struct {
		window, threshold uint32 // packets
		state             tcpip.CongestionControlState
	}
	for _, c := range []struct {
		name  string
		looks []look
		want  int // the look that finds a lossy path, from 1; 0 if none does
	}{
		{"a new connection", []look{{10, none, open}, {20, none, open}, {40, none, open}}, 0},
		{"losses on a wide path", []look{{100, 100, open}, {90, 80, recovery}, {80, 80, open}}, 0},
		{"losses that go on", []look{{8, 8, open}, {7, 7, recovery}, {8, 8, open}}, 3},
		{"losses that leave the threshold as it was", []look{{12, 8, open}, {9, 8, open}, {8, 8, open}}, 3},
		{"losses far apart", []look{{8, 8, open}, {9, 8, open}, {7, 7, open}, {8, 7, open}, {6, 6, open}}, 5},
		{"an outage", []look{{1, 2, recovery}, {11, 2, open}, {33, 2, open}, {88, none, open}}, 0},
		{"an outage on a long path", []look{{1, 2, open}, {2, 2, open}, {4, 2, open}, {7, 2, open}, {9, 2, open}}, 0},
		{"a window that was larger meanwhile", []look{{8, 8, open}, {7, 7, open}, {17, 7, open}, {8, 8, open}, {7, 7, open}}, 0},
		{"not while losses are being repaired", []look{{8, 8, open}, {7, 7, open}, {6, 6, recovery}, {5, 5, tcpip.RTORecovery}, {5, 5, open}}, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			var cc congestion
			got := 0
			for i, l := range c.looks {
				if cc.lossy(tcpip.TCPInfoOption{SndCwnd: l.window, SndSsthresh: l.threshold, CcState: l.state}) {
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
	defaults := Options{TCPSendBuffer: DefaultTCPBuffer, TCPReceiveBuffer: DefaultTCPBuffer, TCPMemory: DefaultTCPMemory}
	little := defaults
	little.TCPMemory = 16 << 20
	for _, c := range []struct {
		name    string
		options Options
		rtt     time.Duration
		send    int
		receive int
	}{
		{"a short path", defaults, time.Millisecond, shortPathBuffer, shortPathBuffer},
		{"a short path with little memory", little, time.Millisecond, 1 << 20, 1 << 20},
		{"a longer one with little memory", little, 50 * time.Millisecond, 15e6, 15e6},
		{"two windows of 1.2 Gbit/s", defaults, 50 * time.Millisecond, 15e6, 15e6},
		{"no more than the bound", defaults, 300 * time.Millisecond, DefaultTCPBuffer, DefaultTCPBuffer},
		{"an unknown one", defaults, 0, DefaultTCPBuffer, DefaultTCPBuffer},
		{"lesser bounds", Options{TCPSendBuffer: 1 << 20, TCPReceiveBuffer: 2 << 20}, time.Second, 1 << 20, 2 << 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			if send, receive := newMemory(c.options).most(c.rtt, windowRate); send != c.send || receive != c.receive {
				t.Errorf("got %d to send and %d to receive, want %d and %d", send, receive, c.send, c.receive)
			}
		})
	}
}
