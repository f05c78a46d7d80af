//go:build linux && e2e

package e2e

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/postern-dev/postern/testenv/netlab"
)

// Addresses of the world that tests use:
//
//	kube 10.9.0.10 ── 10.9.0.1 cloud 198.51.100.10 ──┐
//	                          third 198.51.100.30 ───┤ wan
//	                        scanner 198.51.100.66 ───┤
//	  edge 192.168.7.2 ── 192.168.7.1 nat 198.51.100.20
const (
	cloudAddr   = "198.51.100.10"
	natAddr     = "198.51.100.20"
	thirdAddr   = "198.51.100.30"
	scannerAddr = "198.51.100.66"
	edgeAddr    = "192.168.7.2"
	kubeAddr    = "10.9.0.10"

	gatewayPort = 51820
)

// world is the internet of one test.
type world struct {
	t              *testing.T
	lab            *netlab.Lab
	wan            *netlab.Network
	nat            *netlab.NAT
	cloud, edge    *netlab.Host
	kube           *netlab.Host
	third, scanner *netlab.Host
}

func newWorld(t *testing.T) *world {
	t.Helper()
	lab := netlab.New(t)
	w := &world{
		t: t, lab: lab,
		wan:   lab.Network("wan", netip.MustParsePrefix("198.51.100.0/24")),
		cloud: lab.Host("cloud"), edge: lab.Host("edge"), kube: lab.Host("kube"),
		third: lab.Host("third"), scanner: lab.Host("scanner"),
	}
	lan := lab.Network("lan", netip.MustParsePrefix("192.168.7.0/24"))
	cluster := lab.Network("cluster", netip.MustParsePrefix("10.9.0.0/24"))
	w.nat = lab.NAT("nat", netlab.NATOptions{
		Kind: netlab.PortRestricted,
		WAN:  w.wan, WANAddr: netip.MustParseAddr(natAddr),
		LAN: lan, LANAddr: netip.MustParseAddr("192.168.7.1"),
	})
	for _, h := range []struct {
		host *netlab.Host
		addr string
	}{{w.cloud, cloudAddr}, {w.third, thirdAddr}, {w.scanner, scannerAddr}} {
		h.host.Attach("eth0", w.wan, netip.MustParseAddr(h.addr))
	}
	w.cloud.Attach("eth1", cluster, netip.MustParseAddr("10.9.0.1"))
	w.kube.Attach("eth0", cluster, netip.MustParseAddr(kubeAddr))
	w.edge.Attach("eth0", lan, netip.MustParseAddr(edgeAddr))
	w.edge.DefaultRoute(netip.MustParseAddr("192.168.7.1"))
	return w
}

// patience bounds waits. Nothing takes that long unless it fails or the machine is very busy.
const patience = 5 * time.Minute

// within bounds a step of the test.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// posternBinary returns the program under test: POSTERN_BINARY, or the result of `make build`.
func posternBinary(t *testing.T) string {
	t.Helper()
	path := os.Getenv("POSTERN_BINARY")
	if path == "" {
		path = filepath.Join("..", "..", "bin", "postern")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("there is no program to test: %v (run `make build`, or set POSTERN_BINARY)", err)
	}
	return path
}

// tempDir returns a folder with a path short enough for a Unix socket, which t.TempDir's often is
// not.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "e2e")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove the test's files: %v", err)
		}
	})
	return dir
}

// poll is the polling interval for conditions without an event.
const poll = 100 * time.Millisecond

// eventually polls until ok holds, and fails the test if ctx ends before; ok describes what it saw.
func eventually(ctx context.Context, t *testing.T, what string, ok func() (bool, string)) {
	t.Helper()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		good, saw := ok()
		if good {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: not so in time; last seen: %s", what, saw)
		}
	}
}
