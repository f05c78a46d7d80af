//go:build linux

package netlab

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/miekg/dns"
)

// Zone is a domain, served by a real name server on a host of the lab.
type Zone struct {
	host   *Host
	domain string
	dir    string
	addr   netip.Addr
	serial int
	signed bool
	proc   *Process
	// load makes the server load the zone's text.
	load func(text string)
}

// StartNamed serves a domain with BIND, authoritatively, at port 53 of all addresses of the host.
// addr is the name server's address in the zone. It ends with the test.
func (h *Host) StartNamed(domain string, addr netip.Addr, text string) *Zone {
	h.lab.t.Helper()
	z := h.zone(domain, addr)
	z.load = z.loadNamed
	z.Set(text)
	return z
}

// StartSignedNamed is StartNamed with a zone that BIND signs with generated keys. Records may be
// visible shortly before their signatures.
func (h *Host) StartSignedNamed(domain string, addr netip.Addr, text string) *Zone {
	h.lab.t.Helper()
	z := h.zone(domain, addr)
	z.signed, z.load = true, z.loadNamed
	z.Set(text)
	return z
}

// Anchor returns the public key of a signed zone, as "257 3 13 BASE64".
func (z *Zone) Anchor() string {
	t := z.host.lab.t
	t.Helper()
	files, err := filepath.Glob(filepath.Join(z.dir, "K*.key"))
	if err != nil || len(files) != 1 {
		t.Fatalf("netlab: the keys of %s are %q (%v), want one", z.domain, files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatalf("netlab: the key of %s: %v", z.domain, err)
	}
	_, key, found := strings.Cut(string(text), " DNSKEY ")
	if !found {
		t.Fatalf("netlab: no key in %q", text)
	}
	return strings.TrimSpace(key)
}

// StartValidator runs BIND as a resolver on the host's loopback and at addr. It queries one
// server for a domain and validates the answers with a key.
func (h *Host) StartValidator(domain string, server, addr netip.Addr, anchor string) {
	t := h.lab.t
	t.Helper()
	z := h.zone(domain, addr)
	fields := strings.Fields(anchor)
	if len(fields) < 4 {
		t.Fatalf("netlab: %q is no key", anchor)
	}
	conf := z.write("named.conf", fmt.Sprintf(`options {
  directory %q; pid-file none; session-keyfile none;
  listen-on port 53 { 127.0.0.1; %s; }; listen-on-v6 { none; };
  recursion yes; allow-recursion { any; }; allow-query { any; }; dnssec-validation yes; empty-zones-enable no;
};
controls {};
trust-anchors { %q static-key %s %s %s "%s"; };
zone %q { type forward; forward only; forwarders { %s; }; };
`, z.dir, addr, domain, fields[0], fields[1], fields[2], strings.Join(fields[3:], ""), domain, server))
	z.await("running", "named", "-g", "-n", "1", "-c", conf)
}

// StartDnsmasq serves a domain with dnsmasq, which does not read zone files: records of the types
// PTR, SRV, TXT, A, AAAA and CNAME are converted to its options.
func (h *Host) StartDnsmasq(domain string, addr netip.Addr, text string) *Zone {
	h.lab.t.Helper()
	z := h.zone(domain, addr)
	z.load = z.loadDnsmasq
	z.Set(text)
	return z
}

func (h *Host) zone(domain string, addr netip.Addr) *Zone {
	t := h.lab.t
	t.Helper()
	dir, err := os.MkdirTemp("", "zone")
	if err != nil {
		t.Fatalf("netlab: a folder for a zone: %v", err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("netlab: remove a zone: %v", err)
		}
	})
	return &Zone{host: h, domain: domain, dir: dir, addr: addr}
}

// Set replaces the records, in the format of zone files and relative to the domain, and waits
// until the server has loaded them.
func (z *Zone) Set(text string) {
	z.host.lab.t.Helper()
	z.serial++
	z.load(text)
}

// Log returns the server's output since its last start.
func (z *Zone) Log() string { return z.proc.Stderr() }

// Stop stops the server until the next Set.
func (z *Zone) Stop() {
	z.proc.Kill()
	z.proc = nil
}

func (z *Zone) write(name, text string) string {
	z.host.lab.t.Helper()
	file := filepath.Join(z.dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		z.host.lab.t.Fatalf("netlab: write a zone: %v", err)
	}
	return file
}

// await starts the server, or makes the running one reload, and waits until it writes line once
// more.
func (z *Zone) await(line string, args ...string) {
	t := z.host.lab.t
	t.Helper()
	said := 0
	if z.proc == nil {
		z.proc = z.host.Start(Command{Args: args})
	} else {
		said = strings.Count(z.proc.Stderr(), line)
		if err := z.proc.Signal(syscall.SIGHUP); err != nil {
			t.Fatalf("netlab: reload the zone: %v", err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	if _, err := z.proc.WaitStderr(ctx, func(log string) bool { return strings.Count(log, line) > said }); err != nil {
		t.Fatalf("netlab: the name server of %s: %v", z.domain, err)
	}
}

func (z *Zone) loadNamed(text string) {
	z.host.lab.t.Helper()
	file := z.write("zone", fmt.Sprintf("$TTL 5\n@ IN SOA ns admin %d 60 60 600 5\n@ IN NS ns\nns IN A %s\n%s\n", z.serial, z.addr, text))
	signing, which := "", ""
	if z.signed {
		signing, which = "dnssec-policy default; inline-signing yes; ", " (unsigned)"
	}
	conf := z.write("named.conf", fmt.Sprintf(`options {
  directory %q; pid-file none; session-keyfile none;
  listen-on port 53 { any; }; listen-on-v6 port 53 { any; };
  recursion no; dnssec-validation no; allow-query { any; }; notify no;
};
controls {};
zone %q { type primary; file %q; %s};
`, z.dir, z.domain, file, signing))
	z.await(fmt.Sprintf("zone %s/IN%s: loaded serial %d", z.domain, which, z.serial), "named", "-g", "-n", "1", "-c", conf)
}

// loadDnsmasq restarts the server, because it only reads its options at the start.
func (z *Zone) loadDnsmasq(text string) {
	z.host.lab.t.Helper()
	if z.proc != nil {
		z.Stop()
	}
	lines := []string{"no-resolv", "no-hosts", "bind-interfaces", "user=root", "pid-file=", "neg-ttl=5", "local=/" + z.domain + "/",
		"listen-address=" + z.addr.String()}
	conf := z.write("dnsmasq.conf", strings.Join(append(lines, dnsmasqRecords(z.host.lab.t, z.domain, text)...), "\n")+"\n")
	z.await("started", "dnsmasq", "--keep-in-foreground", "--log-facility=-", "--conf-file="+conf)
}

// dnsmasqRecords converts records to options of dnsmasq(8).
func dnsmasqRecords(t testing.TB, domain, text string) []string {
	t.Helper()
	name := func(s string) string { return strings.TrimSuffix(s, ".") }
	var out []string
	p := dns.NewZoneParser(strings.NewReader(fmt.Sprintf("$ORIGIN %s.\n$TTL 5\n%s\n", domain, text)), "", "")
	for rr, ok := p.Next(); ok; rr, ok = p.Next() {
		h := rr.Header()
		owner := name(h.Name)
		switch r := rr.(type) {
		case *dns.PTR:
			out = append(out, fmt.Sprintf("ptr-record=%s,%q", owner, name(r.Ptr)))
		case *dns.SRV:
			out = append(out, fmt.Sprintf("srv-host=%s,%s,%d,%d,%d", owner, name(r.Target), r.Port, r.Priority, r.Weight))
		case *dns.TXT:
			out = append(out, fmt.Sprintf(`txt-record=%s,"%s"`, owner, strings.Join(r.Txt, `","`)))
		case *dns.A:
			out = append(out, fmt.Sprintf("host-record=%s,%s,%d", owner, r.A, h.Ttl))
		case *dns.AAAA:
			out = append(out, fmt.Sprintf("host-record=%s,%s,%d", owner, r.AAAA, h.Ttl))
		case *dns.CNAME:
			out = append(out, fmt.Sprintf("cname=%s,%s,%d", owner, name(r.Target), h.Ttl))
		default:
			t.Fatalf("netlab: dnsmasq has no option for %v", rr)
		}
	}
	if err := p.Err(); err != nil {
		t.Fatalf("netlab: read a zone: %v", err)
	}
	return append(out, "local-ttl=5")
}
