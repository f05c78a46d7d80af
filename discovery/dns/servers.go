package dnssd

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

const (
	// dnsPort is the port of DNS servers (RFC 1035 §4.2).
	dnsPort = 53
	// maxServers is how many servers of resolv.conf are used: more than the 3 of resolv.conf(5).
	maxServers = 4
	// maxResolvConf limits how much of the file is read, in bytes.
	maxResolvConf = 64 << 10
	// failingFor is how long a server that did not answer is tried after the others.
	failingFor = time.Minute
)

// resolvConf lists the system's servers (resolv.conf(5)).
const resolvConf = "/etc/resolv.conf"

// systemServers returns the servers of a resolv.conf. Without any it is this host.
func systemServers(file string) ([]netip.AddrPort, error) {
	f, err := os.Open(file)
	if os.IsNotExist(err) {
		return []netip.AddrPort{localServer()}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find the DNS servers: %w", err)
	}
	defer f.Close()
	return parseServers(io.LimitReader(f, maxResolvConf))
}

func localServer() netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), dnsPort)
}

func parseServers(r io.Reader) ([]netip.AddrPort, error) {
	conf, err := dns.ClientConfigFromReader(r)
	if err != nil {
		return nil, fmt.Errorf("find the DNS servers: %w", err)
	}
	var out []netip.AddrPort
	for _, s := range conf.Servers {
		a, err := netip.ParseAddr(strings.TrimSpace(s))
		if err == nil && len(out) < maxServers {
			out = append(out, netip.AddrPortFrom(a.Unmap(), dnsPort))
		}
	}
	if len(out) == 0 {
		out = append(out, localServer())
	}
	return out, nil
}

// health records which servers did not answer. It is safe for concurrent use.
type health struct {
	mu      sync.Mutex
	failing map[netip.AddrPort]time.Time // until when
}

// arrange sorts servers that answer before the others, each group in its given order.
func (h *health) arrange(now time.Time, servers []netip.AddrPort) []netip.AddrPort {
	h.mu.Lock()
	defer h.mu.Unlock()
	var well, ill []netip.AddrPort
	for _, s := range servers {
		if h.failing[s].After(now) {
			ill = append(ill, s)
		} else {
			well = append(well, s)
		}
	}
	return append(well, ill...)
}

func (h *health) silent(now time.Time, s netip.AddrPort) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failing == nil || len(h.failing) > 16*maxServers {
		h.failing = map[netip.AddrPort]time.Time{}
	}
	h.failing[s] = now.Add(failingFor)
}

func (h *health) answers(s netip.AddrPort) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.failing, s)
}
