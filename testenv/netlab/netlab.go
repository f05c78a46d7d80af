//go:build linux

// Package netlab builds small internets out of Linux network namespaces, for tests that run the
// real programs: hosts, switched networks and routers with NAT, connected by veth pairs, with the
// kernel's IP stack, conntrack and nftables. It needs root, iproute2 and nftables, and changes
// nothing outside its namespaces: not the machine's interfaces, routes, rules or sysctls.
//
// A [Lab] belongs to one test. When the test ends, everything is removed: first processes, by ID,
// then namespaces with their interfaces, rules and counters. A killed test process cannot clean
// up. Its children die with it (PR_SET_PDEATHSIG). The names of its namespaces contain its
// process ID and start time, so that the next lab on the machine can remove them.
//
// Methods that build the lab fail the test on an error. Commands run in the lab return errors
// with the command and its output.
package netlab

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// setupTimeout bounds one command that builds or removes a part of a lab. Each takes
// milliseconds; the bound is for a machine in trouble.
const setupTimeout = 3 * time.Minute

// Lab is an internet of namespaces that belongs to one test. Its methods are safe for concurrent
// use, but must be called before the test ends.
type Lab struct {
	t      testing.TB
	prefix string // of the names of all this lab's namespaces

	mu    sync.Mutex
	hosts map[string]bool
}

// labs counts the labs of this process and makes their names unique. Random names would sometimes
// collide.
var labs atomic.Uint64

// New creates an empty lab and removes namespaces that dead test processes left behind. It fails
// the test if it is not run as root.
func New(t testing.TB) *Lab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("netlab: network namespaces need root; run `make e2e` as root")
	}
	if err := sweep(); err != nil {
		t.Fatalf("netlab: remove namespaces of dead tests: %v", err)
	}
	own, err := processOwner(os.Getpid())
	if err != nil {
		t.Fatalf("netlab: %v", err)
	}
	l := &Lab{t: t, prefix: own.namePrefix() + strconv.FormatUint(labs.Add(1), 36) + "-", hosts: map[string]bool{}}
	t.Cleanup(l.remove)
	return l
}

// remove deletes all namespaces with this lab's name prefix, not only those that the lab knows
// of.
func (l *Lab) remove() {
	names, err := namespaces()
	if err != nil {
		l.t.Errorf("netlab: list namespaces: %v", err)
	}
	for _, name := range names {
		if !strings.HasPrefix(name, l.prefix) {
			continue
		}
		if err := deleteNamespace(name); err != nil {
			l.t.Errorf("netlab: %v", err)
		}
	}
}

// Host creates a host: a namespace with its loopback up and no other interface. The name is for
// display; it must be unique in the lab.
func (l *Lab) Host(name string) *Host {
	l.t.Helper()
	l.mu.Lock()
	taken := l.hosts[name]
	l.hosts[name] = true
	l.mu.Unlock()
	if taken {
		l.t.Fatalf("netlab: there are two hosts named %q", name)
	}
	h := &Host{lab: l, name: name, namespace: l.prefix + name, networks: map[string]*Network{}}
	l.must("ip", "netns", "add", h.namespace)
	l.must("ip", "-n", h.namespace, "link", "set", "lo", "up")
	return h
}

// Network is a switched network (a bridge in its own namespace, without an address): all attached
// hosts reach each other directly.
type Network struct {
	lab    *Lab
	host   *Host
	prefix netip.Prefix
	mtu    int // size of IP packets in bytes

	mu    sync.Mutex
	ports int
}

// defaultMTU is Ethernet's, in bytes of IP packets.
const defaultMTU = 1500

// Network creates a network with the given prefix.
func (l *Lab) Network(name string, prefix netip.Prefix) *Network {
	l.t.Helper()
	return l.NarrowNetwork(name, prefix, defaultMTU)
}

// NarrowNetwork creates a network for IP packets of at most mtu bytes. All its interfaces have
// that MTU, so a router to a wider network fragments larger packets or reports an error; see
// [Host.DropICMPErrors] and [Host.DropFragments].
func (l *Lab) NarrowNetwork(name string, prefix netip.Prefix, mtu int) *Network {
	l.t.Helper()
	h := l.Host("net-" + name)
	l.must("ip", "-n", h.namespace, "link", "add", "br0", "type", "bridge")
	l.must("ip", "-n", h.namespace, "link", "set", "br0", "up")
	return &Network{lab: l, host: h, prefix: prefix, mtu: mtu}
}

// Router creates a host that forwards IPv4 between its networks.
func (l *Lab) Router(name string) *Host {
	l.t.Helper()
	h := l.Host(name)
	h.Sysctl("net.ipv4.ip_forward", "1")
	return h
}

// port returns the name of a new port of the bridge.
func (n *Network) port() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ports++
	return fmt.Sprintf("p%d", n.ports)
}

// must runs a command that builds the lab, in no namespace, and fails the test on an error.
func (l *Lab) must(args ...string) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	if _, err := Run(ctx, "", "", args...); err != nil {
		l.t.Fatalf("netlab: %v", err)
	}
}
