package dnssd

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestAFinderFollowsAZone lets a gateway appear in a zone, change its key and disappear.
func TestAFinderFollowsAZone(t *testing.T) {
	z := newZoneServer(t, "")
	changed := make(chan struct{}, 64)
	f, err := New(Options{
		Domains: []string{"example.com"}, Servers: []netip.AddrPort{z.addr},
		Changed: func() { changed <- struct{}{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	if d := f.Domains(); len(d) != 1 || d[0].Name != "example.com" || !d[0].Looked.IsZero() {
		t.Errorf("before it runs: %+v", d)
	}
	if n := len(z.questions()); n != 0 {
		t.Errorf("%d questions were asked before it runs", n)
	}
	ctx, stop := context.WithCancel(within(t))
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	until := func(what string, holds func(d Domain) bool) {
		t.Helper()
		for !holds(f.Domains()[0]) {
			select {
			case <-changed:
			case <-ctx.Done():
				t.Fatalf("%s: still %+v", what, f.Domains())
			}
		}
	}
	until("nothing is there", func(d Domain) bool { return len(d.Problems) == 1 && d.Problems[0].Kind == Nothing })

	z.set(t, zoneText(good))
	f.NetworkChanged()
	until("the gateway is found", func(d Domain) bool { return len(d.Instances) == 1 && d.Instances[0].Key == keyOf(1) })

	z.set(t, zoneText(strings.Replace(good[:strings.Index(good, ` "ov`)]+"\ngw A 203.0.113.7", "PK1", "PK2", 1)))
	f.NetworkChanged()
	until("its key is another", func(d Domain) bool { return len(d.Instances) == 1 && d.Instances[0].Key == keyOf(2) })

	z.change(func() { z.mute = true })
	f.NetworkChanged()
	until("the server is silent", func(d Domain) bool {
		return len(d.Problems) == 1 && d.Problems[0].Kind == Unanswered && d.Instances[0].Usable()
	})
	if err := f.Run(ctx); !errors.Is(err, ErrRunning) {
		t.Errorf("a second run: %v", err)
	}
	stop()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("run ends with %v", err)
	}
}

func TestNewRefusesWhatIsNoDomain(t *testing.T) {
	if _, err := New(Options{Domains: []string{"example.com", "_x._udp.example.com"}}); err == nil {
		t.Error("a service is taken for a domain")
	}
}
