//go:build linux && e2e

package netlab

import (
	"crypto/tls"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postern-dev/postern/testenv/pki"
)

const turnAddr, turnAltAddr = "198.51.100.3", "198.51.100.4"

// newTURNBench returns a NAT, a host behind it, and a host for a TURN server with two addresses.
func newTURNBench(t *testing.T, kind NATKind) (b *natBench, server *Host) {
	t.Helper()
	b = newNATBench(t, kind)
	server = b.lab.Host("turn")
	server.Attach("eth0", b.wan, addr(turnAddr))
	server.AddAddress("eth0", netip.MustParsePrefix(turnAltAddr+"/24"))
	return b, server
}

func plainTURN() TURNOptions {
	return TURNOptions{Listen: []netip.Addr{addr(turnAddr), addr(turnAltAddr)}, Username: "u", Password: "p", Verbose: true}
}

// TestRFC5780NamesNATKinds compares the NATs with the results of coturn's own client: a second
// opinion on the rules, and on the server's two addresses.
func TestRFC5780NamesNATKinds(t *testing.T) {
	for _, c := range []struct {
		kind               NATKind
		mapping, filtering string
	}{
		{FullCone, "Endpoint Independent", "Endpoint Independent"},
		{AddressRestricted, "Endpoint Independent", "Address Dependent"},
		{PortRestricted, "Endpoint Independent", "Address and Port Dependent"},
		{Symmetric, "Address and Port Dependent", "Address and Port Dependent"},
		{PortChanging, "Endpoint Independent", "Address and Port Dependent"},
	} {
		t.Run(c.kind.String(), func(t *testing.T) {
			t.Parallel()
			b, server := newTURNBench(t, c.kind)
			server.StartTURN(plainTURN())
			b.inside.Close() // the tool uses its port
			// One at a time: the mapping test sends to all addresses of the server, after which
			// the NAT no longer filters them.
			for option, want := range map[string]string{
				"-m": "NAT with " + c.mapping + " Mapping",
				"-f": "NAT with " + c.filtering + " Filtering",
			} {
				b.nat.Restart()
				out, err := b.insideHost.Run(deadline(t), "turnutils_natdiscovery", option,
					"-L", insideAddr, "-l", portText(insidePort), turnAddr)
				if err != nil {
					t.Fatal(err)
				}
				if !strings.Contains(out, want) {
					t.Errorf("the tool did not find %q:\n%s", want, out)
				}
			}
		})
	}
}

// TestAllocationsRelay makes coturn's own client talk to itself through two relayed addresses.
func TestAllocationsRelay(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*TURNOptions)
		client []string
		fails  string // in the output of the client or the server
	}{
		{"UDP", func(*TURNOptions) {}, nil, ""},
		{"TCP alone", func(o *TURNOptions) { o.NoUDP = true }, []string{"-t"}, ""},
		{"another password", func(o *TURNOptions) { o.Password = "other" }, nil, "401"},
		{"peers denied", func(o *TURNOptions) { o.DeniedPeers = []string{turnAddr + "-" + turnAltAddr} }, nil, "403"},
		{"private peers denied", func(o *TURNOptions) { o.DeniedPeers = PrivateRanges() }, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b, host := newTURNBench(t, Symmetric)
			o := plainTURN()
			c.change(&o)
			server := host.StartTURN(o)
			args := append([]string{"turnutils_uclient", "-y", "-u", "u", "-w", "p", "-n", "5", "-m", "1"}, c.client...)
			p := b.insideHost.Start(Command{Args: append(args, turnAddr), Dir: t.TempDir()})
			if c.fails != "" {
				// The client retries forever; the server logs its response.
				if _, err := server.proc.WaitStdout(deadline(t), func(s string) bool { return strings.Contains(s, c.fails) }); err != nil {
					t.Error(err)
				}
				return
			}
			code, err := p.Wait(deadline(t))
			if err != nil || code != 0 || !strings.Contains(p.Stdout()+p.Stderr(), "Total lost packets 0 ") {
				t.Errorf("exit code %d, %v:\n%s%s", code, err, p.Stdout(), p.Stderr())
			}
		})
	}
}

func TestTURNServerRestarts(t *testing.T) {
	b, host := newTURNBench(t, PortRestricted)
	s := host.StartTURN(plainTURN())
	s.Stop()
	if _, err := b.insideHost.DialContext(deadline(t), "tcp", s.Addr().String()); err == nil {
		t.Error("a stopped server accepts connections")
	}
	s.Start()
	for _, a := range []netip.AddrPort{s.Addr(), s.AltAddr()} {
		c, err := b.insideHost.DialContext(deadline(t), "tcp", a.String())
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
}

func TestTURNServerSpeaksTLS(t *testing.T) {
	ca, err := pki.NewCA("turn")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Server("turn.example.net", turnAddr)
	if err != nil {
		t.Fatal(err)
	}
	o := plainTURN()
	if o.CertFile, o.KeyFile, err = pair.Write(t.TempDir(), "turn"); err != nil {
		t.Fatal(err)
	}
	b, host := newTURNBench(t, PortRestricted)
	s := host.StartTURN(o)
	c, err := b.insideHost.DialContext(deadline(t), "tcp", s.TLSAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	conn := tls.Client(c, &tls.Config{RootCAs: ca.Pool(), ServerName: "turn.example.net", MinVersion: tls.VersionTLS12})
	if err := conn.HandshakeContext(deadline(t)); err != nil {
		t.Errorf("handshake with %s: %v (certificate in %s)", s.TLSAddr(), err, filepath.Base(o.CertFile))
	}
}
