//go:build linux

// Package netlab builds small internets out of Linux network namespaces for tests that
// run the real programs: hosts, switched networks and routers with NAT, joined by veth
// pairs, with the kernel's own IP stack, conntrack and nftables in between. It needs
// root, iproute2 and nftables, and touches nothing outside the namespaces it makes: not
// the machine's own interfaces, routes, rules or sysctls.
//
// A [Lab] belongs to one test. Everything it makes goes when the test ends: processes
// first, by their id, then namespaces (and with them every interface, rule and counter
// inside). A test process that is killed cannot clean up; its children die with it
// (PR_SET_PDEATHSIG), and the namespaces it left carry its process id and start time in
// their names, so that the next lab on the machine removes them.
//
// Building methods end the test on failure, since a lab that cannot be built proves
// nothing; commands run inside the lab return errors that show the command and what it
// printed.
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

// Lab is an internet of namespaces that belongs to one test. Its methods are safe for
// concurrent use, but must be called before the test ends.
type Lab struct {
	t      testing.TB
	prefix string // of the names of all namespaces of this lab

	mu    sync.Mutex
	hosts map[string]bool
}

// labs counts the labs of this process, which differ in it: by chance two of hundreds would
// have one name now and then, and each other's namespaces.
var labs atomic.Uint64

// New makes an empty lab and removes namespaces that dead test processes left behind.
// It fails the test when it isn't run by root.
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

// remove deletes every namespace whose name begins as this lab's do, whatever the lab
// remembers of having made.
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

// Host makes a host: a namespace with its loopback up and no other interface. The name
// is for people; it must be unique in the lab.
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

// Network is a switched network (a bridge in a namespace of its own, without an
// address): every host attached to it reaches every other directly.
type Network struct {
	lab    *Lab
	host   *Host
	prefix netip.Prefix
	mtu    int // bytes of IP packets

	mu    sync.Mutex
	ports int
}

// defaultMTU is Ethernet's, in bytes of IP packets.
const defaultMTU = 1500

// Network makes a network with the given prefix.
func (l *Lab) Network(name string, prefix netip.Prefix) *Network {
	l.t.Helper()
	return l.NarrowNetwork(name, prefix, defaultMTU)
}

// NarrowNetwork makes a network that takes IP packets of at most mtu bytes. Every
// interface on it has that MTU, so a router between it and a wider one cuts what is too
// large or says so; see [Host.DropICMPErrors] and [Host.DropFragments].
func (l *Lab) NarrowNetwork(name string, prefix netip.Prefix, mtu int) *Network {
	l.t.Helper()
	h := l.Host("net-" + name)
	l.must("ip", "-n", h.namespace, "link", "add", "br0", "type", "bridge")
	l.must("ip", "-n", h.namespace, "link", "set", "br0", "up")
	return &Network{lab: l, host: h, prefix: prefix, mtu: mtu}
}

// Router makes a host that forwards IPv4 between the networks it is attached to.
func (l *Lab) Router(name string) *Host {
	l.t.Helper()
	h := l.Host(name)
	h.Sysctl("net.ipv4.ip_forward", "1")
	return h
}

// port names a new port of the bridge.
func (n *Network) port() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ports++
	return fmt.Sprintf("p%d", n.ports)
}

// must runs a command that builds the lab, in no namespace, and ends the test when it
// fails.
func (l *Lab) must(args ...string) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	if _, err := Run(ctx, "", "", args...); err != nil {
		l.t.Fatalf("netlab: %v", err)
	}
}
