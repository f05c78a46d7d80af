package bench

import (
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/postern-dev/postern/bench/load"
	"github.com/postern-dev/postern/discovery/relay"
	"github.com/postern-dev/postern/testenv/patience"
	"github.com/postern-dev/postern/tunnel/peer"
)

// runningRelay is a TURN server in this process.
type runningRelay struct {
	address string
	stop    func()
}

func startRelay(t *testing.T) runningRelay {
	t.Helper()
	at, err := freePort(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	until, end := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- ServeRelay(at.String(), until) }()
	if err := serves(t.Context(), at, ended); err != nil {
		t.Fatal(err)
	}
	return runningRelay{at.String(), sync.OnceFunc(func() {
		end.Close()
		if err := <-ended; err != nil {
			t.Errorf("relay: %v", err)
		}
	})}
}

func TestARunWhoseAllocationIsLostFails(t *testing.T) {
	defer goleak.VerifyNone(t)
	server := startRelay(t)
	defer server.stop()
	key, err := peer.NewPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	e, err := newEnd(key, sizes{}, hooks{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.close()
	r, err := allocate(t.Context(), e.bind, relay.Server{
		Address: server.address, Username: relayUser, Password: relayPassword, Transport: relay.TransportTCP,
	})
	if err != nil {
		t.Fatal(err)
	}
	server.stop()
	ctx, cancel := context.WithTimeout(t.Context(), patience.Left())
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for _, there := r.client.Allocation(); there; _, there = r.client.Allocation() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("the allocation is still there")
		}
	}
	if err := r.close(); err == nil || !strings.Contains(err.Error(), "was lost meanwhile") {
		t.Errorf("got %v, want an error about the lost allocation", err)
	}
}

func TestNoRelayNoRun(t *testing.T) {
	defer goleak.VerifyNone(t)
	server := startRelay(t)
	server.stop()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := newRelayed(relay.TransportTCP)(ctx, load.Spec{Relay: server.address})
	if err == nil || !strings.Contains(err.Error(), "no allocation at "+server.address) {
		t.Errorf("got %v, want an error that names the server", err)
	}
}

// relayArgs returns the command line of this test binary as a TURN server.
func relayArgs(t *testing.T) func(netip.AddrPort) []string {
	program := self(t)[0]
	return func(at netip.AddrPort) []string { return []string{program, relayArg, at.String()} }
}

func TestARelayLivesAsLongAsTheRun(t *testing.T) {
	connect := func(ctx context.Context, address string) error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err == nil {
			conn.Close()
		}
		return err
	}
	var at string
	got, err := through(relayArgs(t), func(ctx context.Context, spec load.Spec) (load.Result, error) {
		at = spec.Relay
		return load.Result{Bytes: uint64(spec.Streams)}, connect(ctx, at)
	})(t.Context(), load.Spec{Streams: 3})
	if err != nil || got.Bytes != 3 {
		t.Fatalf("got %d bytes, %v; want the 3 of the spec", got.Bytes, err)
	}
	if err := connect(t.Context(), at); err == nil {
		t.Errorf("%s accepts connections after the run", at)
	}
}

func TestARelayThatEndsIsTheRunsFailure(t *testing.T) {
	fails := func(netip.AddrPort) []string { return append(self(t), "not JSON") }
	_, err := through(fails, func(context.Context, load.Spec) (load.Result, error) {
		t.Error("the run took place without a relay")
		return load.Result{}, nil
	})(t.Context(), load.Spec{})
	if err == nil || !strings.Contains(err.Error(), "ended at once") || !strings.Contains(err.Error(), "not JSON") {
		t.Errorf("got %v, want an error with the program's output", err)
	}
}

func TestCoturnThatIsNotInstalledIsSaidSo(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if err := findCoturn(t.Context()); err == nil || !strings.Contains(err.Error(), "coturn is not installed") {
		t.Errorf("got %v, want an error that it is not installed", err)
	}
	if err := os.WriteFile(os.Getenv("PATH")+"/"+coturnProgram, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := findCoturn(t.Context()); err != nil {
		t.Errorf("got %v for an installed coturn", err)
	}
}
