package check

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
)

func TestOwnUpstreams(t *testing.T) {
	s := newSite(t)
	right := func() *tls.Config { return s.conf(t, s.ca, catalogue.DefaultServerName, "api.example.net") }
	demanding := func(most uint16) *tls.Config {
		c := right()
		c.ClientAuth, c.ClientCAs, c.MaxVersion = tls.RequireAndVerifyClientCert, s.ca.Pool(), most
		return c
	}
	apiServer := func(addr string) Upstream {
		return Upstream{Service: api.ServiceAPIServer, Address: addr, TLS: true, CA: s.ca.CertPEM()}
	}
	for _, c := range []struct {
		name       string
		upstream   func() Upstream
		net        Network
		outcome    api.Outcome
		code       catalogue.Code
		stage      string
		cause, fix string
	}{
		{"lives", func() Upstream { return apiServer(serveTLS(t, right(), live)) }, Network{}, api.OK, "", "", "", ""},
		{"lives and wants to know who asks", func() Upstream { return apiServer(serveTLS(t, right(), answers(401))) }, Network{}, api.OK, "", "", "", ""},
		{"lives and lets nobody in", func() Upstream { return apiServer(serveTLS(t, right(), answers(403))) }, Network{}, api.OK, "", "", "", ""},
		{"lives and demands a certificate", func() Upstream { return apiServer(serveTLS(t, demanding(tls.VersionTLS13), live)) }, Network{}, api.OK, "", "", "", ""},
		{"lives and demands a certificate by TLS 1.2", func() Upstream { return apiServer(serveTLS(t, demanding(tls.VersionTLS12), live)) }, Network{}, api.OK, "", "", "", ""},
		{"refuses", func() Upstream { return apiServer(closedPort(t)) }, Network{}, api.Error, catalogue.UpstreamRefused, StageTCP,
			"nothing listens at 127.0.0.1:", "set spec.services.apiServer.address"},
		{"has an unknown name", func() Upstream { return apiServer("api.example.invalid:6443") }, nameless(), api.Error, catalogue.UpstreamName, StageDNS,
			"api.example.invalid:6443", "correct spec.services.apiServer.address"},
		{"is not asked, as no file can be opened", func() Upstream { return apiServer("127.0.0.1:6443") }, dialFails(syscall.EMFILE, "127.0.0.1"), api.Error, catalogue.SocketsUsedUp, StageTCP,
			"this machine could not open a connection to 127.0.0.1:6443: too many open files; the server there was not asked", "LimitNOFILE of its systemd unit"},
		{"is not asked, as no file can be opened on the whole machine", func() Upstream { return apiServer("127.0.0.1:6443") }, dialFails(syscall.ENFILE, "127.0.0.1"), api.Error, catalogue.SocketsUsedUp, StageTCP,
			"too many open files in system; the server there was not asked", "sysctl -w fs.file-max="},
		{"is not asked, as no port is left", func() Upstream { return apiServer("127.0.0.1:6443") }, dialFails(syscall.EADDRNOTAVAIL, "127.0.0.1"), api.Error, catalogue.SocketsUsedUp, StageTCP,
			"cannot assign requested address; the server there was not asked", "net.ipv4.ip_local_port_range"},
		{"has an address of a family that this machine has not", func() Upstream { return apiServer("[::1]:6443") }, dialFails(syscall.EADDRNOTAVAIL, "::1"), api.Error, catalogue.UpstreamUnreachable, StageTCP,
			"[::1]:6443, the upstream of apiServer, cannot be reached", "spec.services.apiServer.address"},
		{"has a name that cannot be asked for", func() Upstream { return apiServer("api.example.net:6443") }, Network{Lookup: func(context.Context, string) ([]netip.Addr, error) {
			return nil, &net.DNSError{Err: "dial udp 192.0.2.53:53: socket: too many open files", Name: "api.example.net"}
		}}, api.Error, catalogue.SocketsUsedUp, StageDNS, "this machine could not open a connection to api.example.net:6443", "LimitNOFILE of its systemd unit"},
		{"has no port", func() Upstream { return apiServer("127.0.0.1") }, Network{}, api.Error, catalogue.UpstreamUnreachable, StageTCP, "want HOST:PORT", "spec.services.apiServer.address"},
		{"resets connections", func() Upstream { return apiServer(listen(t, reset)) }, Network{}, api.Error, catalogue.APIServerBroken, StageTLS,
			"the API server of this gateway at 127.0.0.1:", "here see whether the API server restarts"},
		{"speaks no TLS", func() Upstream { return apiServer(listen(t, greets)) }, Network{}, api.Error, catalogue.TLSFailed, StageTLS,
			"TLS with the API server of this gateway at 127.0.0.1:", "here check that spec.services.apiServer.address is an HTTPS port"},
		{"speaks no HTTP", func() Upstream {
			return apiServer(listen(t, secure(right(), greets)))
		}, Network{}, api.Error, catalogue.TLSFailed, StageHTTP, "the API server of this gateway", "HTTPS"},
		{"shows a certificate of another authority", func() Upstream { return apiServer(serveTLS(t, s.conf(t, s.other, catalogue.DefaultServerName), live)) }, Network{},
			api.Error, catalogue.TLSUnknownCA, StageTLS, "signed by other-ca, but this gateway announces site-ca", "set spec.services.apiServer.caFile"},
		{"shows a certificate for another name", func() Upstream { return apiServer(serveTLS(t, s.conf(t, s.ca, "api.example.net"), live)) }, Network{},
			api.Error, catalogue.TLSWrongName, StageTLS, "valid for api.example.net, not for kubernetes.default.svc", "here set spec.services.apiServer.serverName: api.example.net"},
		{"shows a certificate for the name that is set", func() Upstream {
			u := apiServer(serveTLS(t, s.conf(t, s.ca, "api.example.net"), live))
			u.ServerName = "api.example.net"
			return u
		}, Network{}, api.OK, "", "", "", ""},
		{"shows a certificate that ran out", func() Upstream { return apiServer(serveTLS(t, s.expired(t, catalogue.DefaultServerName), live)) }, Network{},
			api.Error, catalogue.TLSNotValidNow, StageTLS, "the API server of this gateway at 127.0.0.1:", "here renew the certificate"},
		{"is ill", func() Upstream { return apiServer(serveTLS(t, right(), answers(500))) }, Network{}, api.Error, catalogue.APIServerHTTP, StageHTTP,
			"answered /livez with HTTP 500", "here see which part of the API server fails, and fix that: `kubectl get --raw '/livez?verbose'`"},
		{"is a named service that listens", func() Upstream { return Upstream{Service: "registry", Address: listen(t, silent)} }, Network{}, api.OK, "", "", "", ""},
		{"is a named service that does not", func() Upstream { return Upstream{Service: "registry", Address: closedPort(t)} }, Network{},
			api.Error, catalogue.UpstreamRefused, StageTCP, "the upstream of registry", "set spec.services.named[name=registry].address"},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := c.upstream()
			got := CheckUpstreams(t.Context(), c.net, []Upstream{u})
			if len(got) != 1 {
				t.Fatalf("got %d results, want 1", len(got))
			}
			checkDirect(t, got[0], "upstream-"+u.Service, c.outcome, c.code, c.stage)
			tellsTheReader(t, got[0], c.cause, c.fix)
		})
	}
}

// dialFails returns a network in which connecting to an address fails as the system does.
func dialFails(why syscall.Errno, to string) Network {
	return Network{Dial: func(context.Context, netip.AddrPort) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.ParseIP(to), Port: 6443}, Err: os.NewSyscallError("connect", why)}
	}}
}

// However many upstreams hang, and wherever in an exchange, the round ends in time and returns them
// in order.
func TestUpstreamsAreCheckedAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		hangs := map[uint16]func(net.Conn){
			1: nil,
			2: silent,
			3: secure(s.conf(t, s.ca, catalogue.DefaultServerName), silent),
			4: secure(s.conf(t, s.ca, catalogue.DefaultServerName), says(body("ok"))),
		}
		o := newOverlay(t)
		for port, serve := range hangs {
			o.on(port, serve)
		}
		n := Network{Dial: func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
			if hangs[to.Port()] == nil {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return o.Dial(ctx, to)
		}}
		var upstreams []Upstream
		for _, a := range []string{"[fd12::1]:1", "[fd12::1]:2", "[fd12::1]:3", "[fd12::1]:4"} {
			upstreams = append(upstreams, Upstream{Service: api.ServiceAPIServer, Address: a, TLS: true, CA: s.ca.CertPEM()})
		}
		start := time.Now()
		got := CheckUpstreams(t.Context(), n, upstreams)
		if took := time.Since(start); took > Timeout {
			t.Errorf("took %s, at most %s is allowed", took, Timeout)
		}
		checkDirect(t, got[0], "upstream-apiServer", api.Error, catalogue.UpstreamTimeout, StageTCP)
		checkDirect(t, got[1], "upstream-apiServer", api.Error, catalogue.APIServerTimeout, StageTLS)
		checkDirect(t, got[2], "upstream-apiServer", api.Error, catalogue.APIServerTimeout, StageHTTP)
		checkDirect(t, got[3], "upstream-apiServer", api.OK, "", "")
		tellsTheReader(t, got[0], "[fd12::1]:1", "let TCP from this gateway to [fd12::1]:1 out here, and through firewalls and NetworkPolicies: `nft insert rule inet filter output ip6 daddr fd12::1 tcp dport 1 accept`")
		tellsTheReader(t, got[2], "the API server of this gateway at [fd12::1]:3 did not answer within 4s", "here see whether the API server answers: `kubectl get --raw /livez`")
	})
}

func TestASlowAPIServerIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, o := newSite(t), newOverlay(t)
		o.on(1, secure(s.conf(t, s.ca, catalogue.DefaultServerName), func(c net.Conn) {
			time.Sleep(2500 * time.Millisecond)
			says(body("ok"))(c)
		}))
		u := Upstream{Service: api.ServiceAPIServer, TLS: true, CA: s.ca.CertPEM(), Address: "[fd12::1]:1"}
		r := CheckUpstreams(t.Context(), Network{Dial: o.Dial}, []Upstream{u})[0]
		checkDirect(t, r, "upstream-apiServer", api.Warning, catalogue.APIServerSlow, StageHTTP)
		if took, way := r.Params().Took, r.Params().Way; took != 2500*time.Millisecond || way > 0 {
			t.Errorf("it took %s, the way %s of it", took, way)
		}
		tellsTheReader(t, r, "the API server of this gateway at [fd12::1]:1", "load of the API server")
	})
}
