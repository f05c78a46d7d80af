package behaviour

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/postern-dev/postern/discovery/stunwire"
)

func TestLossIsNotTakenForFiltering(t *testing.T) {
	for seed := range uint64(200) {
		test := New(a1p1)
		run(t, test, &model{admits: everybody, loss: 0.1, rng: rand.New(rand.NewPCG(seed, 0))})
		if m, f, _, reason := test.Result(); m != EndpointIndependent || f != EndpointIndependent {
			t.Errorf("seed %d: mapping %s, filtering %s: %s", seed, m, f, reason)
		}
	}
}

func TestNothingIsClaimedBeforeTheEnd(t *testing.T) {
	test := New(a1p1)
	check := func() {
		t.Helper()
		if m, f, done, reason := test.Result(); m != Unknown || f != Unknown || done || reason == "" || test.Strays() != StraysUnknown {
			t.Errorf("mapping %s, filtering %s, done %v, reason %q before the end", m, f, done, reason)
		}
	}
	check()
	if a := test.Mapped(); a.IsValid() {
		t.Errorf("mapped address is %v before the test", a)
	}
	now := time.Now()
	send, _ := test.Poll(now)
	check()
	packet, from := (&model{admits: everybody}).serve(t, send[0])
	test.Handle(now, packet, from)
	test.Poll(now)
	check()
	if a := test.Mapped(); a != public {
		t.Errorf("mapped address is %v, want %v", a, public)
	}
	if d := test.Destinations(); len(d) != 4 {
		t.Errorf("destinations are %v, want the server's four", d)
	}
}

func TestRequestsAreRepeatedAndGivenUp(t *testing.T) {
	test := New(netip.MustParseAddrPort("[::ffff:192.0.2.1]:3478"))
	begin := time.Now()
	for _, at := range sendAt() {
		send, next := test.Poll(begin.Add(at))
		if len(send) != 1 || send[0].To != a1p1 || !next.After(begin.Add(at)) {
			t.Fatalf("after %v: %v is sent, next at %v", at, send, next.Sub(begin))
		}
		if again, _ := test.Poll(begin.Add(at)); len(again) != 0 {
			t.Errorf("after %v: sent twice", at)
		}
	}
	if send, next := test.Poll(begin.Add(giveUpAfter)); len(send) != 0 || !next.IsZero() {
		t.Errorf("at the end: %v is sent, next at %v", send, next)
	}
	late := New(a1p1)
	late.Poll(begin)
	if send, next := late.Poll(begin.Add(1600 * time.Millisecond)); len(send) != 1 || next != begin.Add(2*time.Second) {
		t.Errorf("polled late: %d are sent, next at %v", len(send), next.Sub(begin))
	}
}

func TestForeignAnswersAreNotTaken(t *testing.T) {
	test := New(a1p1)
	now := time.Now()
	send, _ := test.Poll(now)
	m, err := stunwire.Parse(send[0].Packet)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := stunwire.BindingResponse(m.TxID, public)
	if err != nil {
		t.Fatal(err)
	}
	other, err := stunwire.BindingResponse(stunwire.NewTxID(), public)
	if err != nil {
		t.Fatal(err)
	}
	failure, err := stunwire.BindingError(m.TxID, 500, "")
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{"another transaction": other, "a request": send[0].Packet, "noise": []byte("noise")} {
		if test.Handle(now, b, a1p1) {
			t.Errorf("%s is taken for an answer", name)
		}
	}
	test.Handle(now, answer, a2p2) // the right transaction, from another address
	test.Handle(now, failure, a2p2)
	if _, next := test.Poll(now); next.IsZero() || test.Mapped().IsValid() {
		t.Error("an answer from elsewhere counts")
	}
	if !test.Handle(now, answer, a1p1) || test.Mapped() != public {
		t.Error("the server's answer does not count")
	}
}
