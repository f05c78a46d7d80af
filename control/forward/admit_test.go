package forward

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/postern-dev/postern/control/audit"
)

// guarded returns an exit with a listener for cloud's API server with this admission.
func guarded(t *testing.T, upstream string, admit func(Local, netip.AddrPort) error) *exit {
	e := newExit(t, Limits{})
	e.opts.Admit, e.opts.Audit = admit, audit.New(slog.New(slog.NewTextHandler(e.log, nil)))
	e.leads("cloud", "apiServer", upstream)
	e.SetLocals([]Local{{Peer: "cloud", Service: "apiServer"}})
	return e
}

func TestWhoIsNotAdmittedIsResetAndNothingIsDialled(t *testing.T) {
	address, conns := upstream(t)
	var asked atomic.Int32
	e := guarded(t, address, func(l Local, from netip.AddrPort) error {
		asked.Add(1)
		if l.Peer != "cloud" || l.Service != "apiServer" || !from.Addr().IsLoopback() || from.Port() == 0 {
			t.Errorf("asked about %+v from %v", l, from)
		}
		return errors.New("pod tenant/x has no label")
	})
	for range 5 {
		wantTurnedAway(t, e.address("cloud", "apiServer"))
	}
	eventually(t, "the count", func() bool { return e.Counters().Refused[NotAdmitted] == 5 })
	e.Close()
	_ = e.flows.Drain(t.Context()) // until whoever might log has ended
	select {
	case <-conns:
		t.Error("the peer was dialled for somebody who is not admitted")
	default:
	}
	if asked.Load() != 5 || e.Counters().Accepted != 0 {
		t.Errorf("asked %d times, accepted %d", asked.Load(), e.Counters().Accepted)
	}
	log := e.log.String()
	if strings.Count(log, "code=PST0429 direction=outbound peer=cloud") != 5 || !strings.Contains(log, "pod tenant/x has no label") {
		t.Errorf("want a warning of each with the reason:\n%s", log)
	}
	if strings.Count(log, "msg=audit event=refuse peer=cloud service=apiServer") != 5 {
		t.Errorf("want an audit record of each:\n%s", log)
	}
}

func TestWhoIsAdmittedIsServed(t *testing.T) {
	address, conns := upstream(t)
	e := guarded(t, address, func(Local, netip.AddrPort) error { return nil })
	c := connect(t, e.address("cloud", "apiServer"))
	up := take(t, conns)
	send(t, c, "request")
	wantRead(t, up, "request")
}

// A slow admission must delay neither other clients nor the end of the listener.
func TestAQuestionThatTakesLongDelaysNobodyElse(t *testing.T) {
	address, conns := upstream(t)
	var first atomic.Bool
	answer := make(chan struct{})
	e := guarded(t, address, func(Local, netip.AddrPort) error {
		if first.CompareAndSwap(false, true) {
			<-answer
			return errors.New("too late to matter")
		}
		return nil
	})
	at := e.address("cloud", "apiServer")
	slow := connect(t, at)
	eventually(t, "the first question", first.Load)
	c := connect(t, at)
	up := take(t, conns)
	send(t, up, "at once")
	wantRead(t, c, "at once")

	// A client that gave up waiting is not counted as turned away.
	e.flows.ClosePeer("cloud")
	wantReset(t, slow)
	close(answer)
	e.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := e.flows.Drain(ctx); err != nil && !errors.Is(err, ErrIdle) {
		t.Error(err)
	}
}

func TestListenersAreOnTheHostThatIsGiven(t *testing.T) {
	e := newExit(t, Limits{})
	host := netip.MustParseAddr("127.0.0.2") // all of 127.0.0.0/8 is this machine's
	e.opts.Host = host
	e.SetLocals([]Local{{Peer: "cloud", Service: "apiServer"}})
	first := netip.MustParseAddrPort(e.address("cloud", "apiServer"))
	if first.Addr() != host {
		t.Errorf("listens on %v, want %v", first, host)
	}
	e.Close()
	again := newExit(t, Limits{})
	again.opts.Host = host
	again.SetLocals([]Local{{Peer: "cloud", Service: "apiServer", Port: first.Port()}})
	if got := again.address("cloud", "apiServer"); got != first.String() {
		t.Errorf("got %s, want the port of before: %v", got, first)
	}
}
