package main

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/bench/peers/tsnet/load"
)

// In a window of shortest, something normally arrives. On a busy machine it may not, so windows
// grow up to longest.
const (
	shortest = 100 * time.Millisecond
	longest  = time.Minute
)

func TestEndsBearLoads(t *testing.T) {
	for _, spec := range []load.Spec{
		{Load: load.LoadStreams, Streams: 2},
		{Load: load.LoadDatagrams, Size: 1000, Rate: 1000},
		{Load: load.LoadConnections},
		{Load: load.LoadRequests, Size: 1000},
		{Load: load.LoadFirstByte},
	} {
		t.Run(spec.Load, func(t *testing.T) { bear(t, spec) })
	}
}

func TestEverythingPassesTheForwarder(t *testing.T) {
	f := newForwarder(t)
	r := bear(t, load.Spec{Streams: 1, Via: f.at()})
	if n := uint64(f.bytes.Load()); n < r.Bytes {
		t.Errorf("%d bytes passed the forwarder, want the %d that arrived and more", n, r.Bytes)
	}
}

func TestAForwarderThatIsNotThere(t *testing.T) {
	silent, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(host)})
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() { // gives up after the first attempt
		_, _, _ = silent.ReadFrom(make([]byte, 1))
		cancel()
	}()
	_, err = newEnds(ctx, load.Spec{Via: silent.LocalAddr().String()})
	if err == nil || !strings.Contains(err.Error(), "no direct path") {
		t.Errorf("got %v, want an error that there is no direct path", err)
	}
	if _, err := newEnds(t.Context(), load.Spec{Via: "nowhere"}); err == nil {
		t.Error("a forwarder without an address: got no error")
	}
}

func TestProxyBearsLoads(t *testing.T) {
	for _, spec := range []load.Spec{
		{Load: load.LoadStreams, Streams: 2, Direction: load.Both},
		{Load: load.LoadConnections},
		{Load: load.LoadRequests, Size: 1000},
	} {
		t.Run(spec.Load, func(t *testing.T) { bearBy(t, newProxy, spec) })
	}
}

// bear runs a load between two nodes. Something must arrive.
func bear(t *testing.T, spec load.Spec) load.Result {
	t.Helper()
	return bearBy(t, newEnds, spec)
}

// bearBy is bear with the given ends.
func bearBy(t *testing.T, newEnds load.Subject, spec load.Spec) load.Result {
	t.Helper()
	for window := shortest; window < longest; window *= 10 {
		spec.Duration = window
		ends, err := newEnds(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		r, err := load.Run(t.Context(), spec, ends)
		if err != nil {
			t.Fatal(err)
		}
		if r.Bytes > 0 {
			return r
		}
		t.Logf("nothing arrived in %s", window)
	}
	t.Fatal("nothing arrived")
	return load.Result{}
}
