package forward

import (
	"errors"
	"io"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/control/api"
)

// If all ports are in use each is tried once, not once for each listener, until one may be free.
func TestPortsThatAreAllUsedAreNotTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := NewOutbound(NewFlows(Limits{}), OutboundOptions{FirstPort: 20000, LastPort: 20009})
		tried := map[uint16]int{}
		used := func(port uint16) (api.ListenAddress, []io.Closer, error) {
			tried[port]++
			return api.ListenAddress{}, nil, syscall.EADDRINUSE
		}
		scan := func(what string, protocol api.Protocol, want int) {
			t.Helper()
			clear(tried)
			for range 5 {
				if _, _, err := o.scan(Local{Protocol: protocol}, used); !errors.Is(err, syscall.EADDRINUSE) {
					t.Errorf("%s: %v", what, err)
				}
			}
			n := 0
			for _, times := range tried {
				n += times
			}
			if n != want || want > 0 && len(tried) != want {
				t.Errorf("%s: tried %v", what, tried)
			}
		}
		scan("at first", api.TCP, 10)
		scan("again", api.TCP, 0)
		scan("of another protocol", api.UDP, 10)
		o.ports.freed(api.TCP)
		scan("when a listener has closed", api.TCP, 10)
		time.Sleep(reopenEvery)
		scan("later", api.TCP, 10)
	})
}

// A port that is to be avoided is taken only if no other is free.
func TestAPortIsAvoidedWhileAnotherIsFree(t *testing.T) {
	o := NewOutbound(NewFlows(Limits{}), OutboundOptions{FirstPort: 20000, LastPort: 20009,
		Avoid: func(l Local, port uint16) bool { return l.Peer == "mallory" && port != 20007 }})
	taken := map[uint16]bool{}
	for i, want := range []bool{false, true, true} {
		port := uint16(0)
		if _, _, err := o.scan(Local{Peer: "mallory"}, func(p uint16) (api.ListenAddress, []io.Closer, error) {
			if taken[p] {
				return api.ListenAddress{}, nil, syscall.EADDRINUSE
			}
			port, taken[p] = p, true
			return api.ListenAddress{}, nil, nil
		}); err != nil {
			t.Fatal(err)
		}
		if avoided := port != 20007; avoided != want {
			t.Errorf("the listener %d is at port %d", i, port)
		}
	}
}
