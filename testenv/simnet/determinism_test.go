package simnet_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/testenv/simnet"
)

// run makes random decisions of all kinds and returns the trace.
func run(t *testing.T, seed uint64) string {
	var trace bytes.Buffer
	virtually(t, seed, func(t *testing.T, in internet) {
		rough := simnet.Conditions{Delay: 5 * time.Millisecond, Jitter: 5 * time.Millisecond, Loss: 0.2, Reorder: 0.1}
		nat := in.nat("nat", "198.51.100.7", nil, simnet.Symmetric())
		a := in.listen(in.host("a", "192.168.1.2", nat.Inside(), rough), 1)
		in.listen(in.host("b", "192.0.2.1", nil, rough), 2)
		in.listen(in.host("c", "192.0.2.2", nil, rough), 2)
		for i := range 200 {
			in.send(a, "x", fmt.Sprintf("192.0.2.%d:2", 1+i%2))
			time.Sleep(time.Millisecond) // virtual
		}
		time.Sleep(time.Second) // virtual
		if err := in.WriteTrace(&trace); err != nil {
			t.Fatal(err)
		}
	})
	return trace.String()
}

func TestTheSameSeedGivesTheSameTrace(t *testing.T) {
	first := run(t, 1)
	for _, want := range []string{"a sends 192.168.1.2:1", "nat makes it 198.51.100.7:", "arrives at b", "dropped at a up: loss"} {
		if !strings.Contains(first, want) {
			t.Errorf("the trace lacks %q", want)
		}
	}
	if second := run(t, 1); second != first {
		t.Errorf("the same seed gave another trace:\n%s\nbefore:\n%s", second, first)
	}
	if other := run(t, 2); other == first {
		t.Error("a different seed gave the same trace")
	}
}

func TestTheTraceKeepsTheLatest(t *testing.T) {
	for _, limit := range []int{-1, 3} {
		in := simnet.New(simnet.Options{Trace: limit})
		h, err := in.AddHost(simnet.HostOptions{Name: "a", Addrs: addrs("192.0.2.1")})
		if err != nil {
			t.Fatal(err)
		}
		c, err := h.ListenUDP(1)
		if err != nil {
			t.Fatal(err)
		}
		for range 4 {
			if _, err := c.WriteToUDPAddrPort(nil, netip.MustParseAddrPort("192.0.2.1:1")); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		for _, e := range in.Trace() {
			got = append(got, fmt.Sprint(e.Kind, e.ID))
		}
		if want := map[int]string{-1: "[]", 3: "[2 3 0 4 2 4]"}[limit]; fmt.Sprint(got) != want {
			t.Errorf("limit %d: got %v, want %s", limit, got, want)
		}
		in.Close()
	}
}
