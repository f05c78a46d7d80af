//go:build linux && e2e

package mcs

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/postern-dev/postern/control/clusterdns"
	testkube "github.com/postern-dev/postern/testenv/kube"
	"github.com/postern-dev/postern/testenv/kube/kubetest"
)

// difference is a difference between our answers and CoreDNS's, and why it is intended.
type difference struct {
	why string
	is  func(q dns.Question, theirs, ours reply, a asked) bool
}

// differences are all intended ones. Each one must occur.
var differences = []difference{
	{"the specification (2.3.4) has no names for single backends of a service with a ClusterSetIP",
		func(q dns.Question, theirs, ours reply, a asked) bool {
			return ours.rcode == dns.RcodeNameError && a.backends[strings.ToLower(q.Name)]
		}},
	{"a name exists that has records or names below it (RFC 8020); CoreDNS denies some for one type and not for another",
		func(q dns.Question, theirs, ours reply, a asked) bool {
			return theirs.rcode == dns.RcodeNameError && ours.empty() && a.known(q.Name)
		}},
	{"no name is there for one type alone: CoreDNS gives no error to SOA and others for names that it denies",
		func(q dns.Question, theirs, ours reply, a asked) bool {
			return q.Qtype == dns.TypeSOA && theirs.empty() && ours.rcode == dns.RcodeNameError
		}},
	{"a port without a name has no SRV record (2.3.2)",
		func(q dns.Question, theirs, ours reply, a asked) bool {
			return q.Qtype == dns.TypeSRV && ours.empty() && a.unnamed[strings.ToLower(q.Name)]
		}},
	{"_port._protocol has its underscores and both its names (RFC 2782)",
		func(q dns.Question, theirs, ours reply, a asked) bool {
			l := dns.SplitDomainName(q.Name)
			return len(l) > 2 && ours.rcode == dns.RcodeNameError && (l[0] == "_" || strings.HasPrefix(l[0], "_") != strings.HasPrefix(l[1], "_"))
		}},
	{"namespaces are not watched: one without an import is not there; nor are there pods",
		func(q dns.Question, theirs, ours reply, a asked) bool {
			l := dns.SplitDomainName(strings.ToLower(q.Name))
			return theirs.empty() && ours.rcode == dns.RcodeNameError && (len(l) == 4 && l[0] == "empty" || l[0] == "pod")
		}},
	{"a question for all types has the shortest answer (RFC 8482), so that nobody asks again",
		func(q dns.Question, theirs, ours reply, a asked) bool {
			return q.Qtype == dns.TypeANY && (theirs.empty() || a.known(q.Name)) && ours.answers == `hinfo "rfc8482" ""`
		}},
	{"CoreDNS names itself by none of the loopback addresses, where it is in this test",
		func(q dns.Question, theirs, ours reply, a asked) bool {
			return theirs.empty() && (q.Qtype == dns.TypeNS && ours.answers == "ns ns.dns.clusterset.local." || ours.answers == "a 127.0.0.1")
		}},
	{"dns-version is that of the specification for clustersets (2.2), not of the one for clusters",
		func(q dns.Question, theirs, ours reply, a asked) bool {
			return theirs.answers == `txt "1.1.0"` && ours.answers == `txt "1.0.0"`
		}},
}

// reply is the compared part of a response: everything except the order, the weights of SRV records
// and the spelling of names.
type reply struct {
	rcode         int
	authoritative bool
	answers, more string
	negative      bool // it has a SOA record in its authority
}

func (r reply) empty() bool { return r.rcode == dns.RcodeSuccess && r.answers == "" }

func replyOf(m *dns.Msg) reply {
	set := func(list []dns.RR) string {
		all := map[string]bool{}
		for _, rr := range list {
			h := *rr.Header()
			if s, is := rr.(*dns.SRV); is {
				s.Weight = 0
			}
			if s, is := rr.(*dns.SOA); is {
				s.Serial = 0
			}
			if h.Rrtype != dns.TypeOPT {
				all[strings.ToLower(dns.TypeToString[h.Rrtype]+" "+strings.TrimPrefix(rr.String(), rr.Header().String()))] = true
			}
		}
		return strings.Join(slices.Sorted(maps.Keys(all)), "; ")
	}
	return reply{m.Rcode, m.Authoritative, set(m.Answer), set(m.Extra), len(m.Ns) == 1 && m.Ns[0].Header().Rrtype == dns.TypeSOA}
}

// asked is what is known about the queries.
type asked struct {
	backends map[string]bool // names that CoreDNS makes for backends of a ClusterSetIP
	unnamed  map[string]bool // where SRV records are of ports without a name alone
	exists   map[string]bool // names for which CoreDNS has anything
}

// known reports whether CoreDNS has something at a name, or below it.
func (a asked) known(name string) bool {
	name = strings.ToLower(name)
	for x := range a.exists {
		if x == name || strings.HasSuffix(x, "."+name) {
			return true
		}
	}
	return name == "dns."+clusterdns.Domain || name == "dns-version."+clusterdns.Domain
}

// variety returns ServiceImports and EndpointSlices of all kinds, and the names to query for them.
func variety(r *rand.Rand, a asked) (objects []any, names []string) {
	yes, no := true, false
	ports := []v1beta1.ServicePort{{Name: "http", Protocol: "TCP", Port: 80}, {Name: "https", Protocol: "TCP", Port: 443}, {Name: "echo", Protocol: "UDP", Port: 9000}}
	clusters := []string{"cloud", "Edge", "a3"}
	slice := 0
	for n := range 12 {
		namespace, name := []string{"shop", "blog"}[n%2], fmt.Sprintf("s%d", n)
		x := &v1beta1.ServiceImport{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1beta1.SchemeGroupVersion.String(), Kind: v1beta1.ServiceImportKindName},
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1beta1.ServiceImportSpec{Type: v1beta1.ClusterSetIP},
		}
		own := name + "." + namespace + ".svc." + clusterdns.Domain
		names = append(names, own, strings.ToUpper(own[:1])+own[1:], "x."+own, "cloud."+own, "a.b.c."+own, "_http._tcp.x."+own,
			"_http._tcp."+own, "_HTTP._Tcp."+own, "_https._tcp."+own, "_echo._udp."+own, "_echo._tcp."+own, "_tcp."+own, "http._tcp."+own, "_http.tcp."+own, "_._tcp."+own)
		x.Spec.Ports = slices.Clone(ports[:1+r.IntN(3)])
		if r.IntN(4) == 0 {
			x.Spec.Ports = []v1beta1.ServicePort{{Protocol: "TCP", Port: 80}}
			a.unnamed[own], a.unnamed["_tcp."+own] = true, true
		}
		if n%4 > 1 {
			x.Spec.Type = v1beta1.Headless
		} else {
			x.Spec.IPs = [][]string{nil, {fmt.Sprintf("10.96.0.%d", n)}, {fmt.Sprintf("fd00::%x", n+1)}, {fmt.Sprintf("10.96.0.%d", n), fmt.Sprintf("fd00::%x", n+1)}}[r.IntN(4)]
		}
		objects = append(objects, x)
		for _, cluster := range clusters[:r.IntN(4)] {
			for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
				if r.IntN(3) == 0 {
					continue
				}
				slice++
				s := &discoveryv1.EndpointSlice{
					TypeMeta: metav1.TypeMeta{APIVersion: discoveryv1.SchemeGroupVersion.String(), Kind: "EndpointSlice"},
					ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("slice-%d", slice),
						Labels: map[string]string{v1beta1.LabelServiceName: name, v1beta1.LabelSourceCluster: cluster}},
					AddressType: family,
				}
				for _, p := range x.Spec.Ports[:r.IntN(len(x.Spec.Ports)+1)] {
					s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &p.Name, Protocol: &p.Protocol, Port: &p.Port})
				}
				for e := range r.IntN(4) {
					addr := fmt.Sprintf("10.97.%d.%d", slice, e)
					if family == discoveryv1.AddressTypeIPv6 {
						addr = []string{fmt.Sprintf("fd01:%x::", slice*16+e), fmt.Sprintf("fd01::%x:%x", slice, e)}[e%2]
					}
					endpoint := discoveryv1.Endpoint{Addresses: []string{addr}, Conditions: discoveryv1.EndpointConditions{Ready: []*bool{nil, &yes, &yes, &no}[r.IntN(4)]}}
					host := strings.NewReplacer(".", "-", ":", "-").Replace(addr)
					if strings.HasSuffix(host, "-") {
						host += "0"
					}
					if e < 2 {
						host = fmt.Sprintf("pod-%d", e)
						endpoint.Hostname = &host
					}
					s.Endpoints = append(s.Endpoints, endpoint)
					full := host + "." + cluster + "." + own
					names = append(names, full, strings.ToUpper(host)+"."+cluster+"."+own, host+".other."+own, cluster+"."+own)
					if x.Spec.Type == v1beta1.ClusterSetIP {
						a.backends[strings.ToLower(full)] = true
					}
					if x.Spec.Ports[0].Name == "" {
						a.unnamed[strings.ToLower(full)] = true
					}
				}
				objects = append(objects, s)
			}
		}
	}
	for _, name := range []string{"shop.svc.", "SHOP.svc.", "empty.svc.", "none.svc.", "x.none.svc.", "svc.", "pod.", "x.pod.", "dns.", "ns.dns.", "x.ns.dns.", "dns-version.", "x.", "*.shop.svc.", ""} {
		names = append(names, name+clusterdns.Domain)
	}
	return objects, append(names, "example.com.", ".", "local.", "xclusterset.local.", "7.0.96.10.in-addr.arpa.", "web.shop.svc.cluster.local.")
}

// startCoreDNS serves the clusterset of an API server, and returns the address.
func startCoreDNS(t *testing.T, kubeconfig string) (addr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	program, err := testkube.CoreDNS(ctx, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		free, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr = free.Addr().String()
		_ = free.Close()
		_, port, _ := net.SplitHostPort(addr)
		file := filepath.Join(t.TempDir(), "Corefile")
		text := fmt.Sprintf("clusterset.local:%s {\n\tbind 127.0.0.1\n\terrors\n\tkubernetes clusterset.local {\n\t\tkubeconfig %q\n\t\tmulticluster clusterset.local\n\t}\n}\n", port, kubeconfig)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, "-conf", file)
		cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { _ = cmd.Wait(); close(ended) }()
		for ready := false; !ready; {
			select {
			case <-ended: // somebody else has taken the port
				ready = true
			case <-time.After(50 * time.Millisecond):
				m, _, err := (&dns.Client{Net: "tcp"}).Exchange(new(dns.Msg).SetQuestion("none.svc."+clusterdns.Domain, dns.TypeA), addr)
				if err == nil && m.Rcode == dns.RcodeNameError { // it has seen all
					t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
					return addr
				}
				ready = time.Now().After(deadline)
			}
		}
		_ = cmd.Process.Kill()
	}
	t.Fatal("CoreDNS does not serve")
	return ""
}

// TestOursAnswersAsCoreDNS sends all kinds of queries to both servers, which use one API server.
func TestOursAnswersAsCoreDNS(t *testing.T) {
	c := kubetest.Start(t)
	definitions(t, c, asItIs)
	for _, namespace := range []string{"shop", "blog", "empty"} {
		c.Run(t, "", "create", "namespace", namespace)
	}
	a := asked{backends: map[string]bool{}, unnamed: map[string]bool{}, exists: map[string]bool{}}
	objects, names := variety(rand.New(rand.NewPCG(1, 2)), a)
	list, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": objects})
	if err != nil {
		t.Fatal(err)
	}
	c.Run(t, string(list), "apply", "-f", "-")

	token := c.Administrator(t)
	theirs := startCoreDNS(t, c.Bearer(t, "default", token))
	ctx, cancel := context.WithCancel(t.Context())
	listener, err := clusterdns.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := clusterdns.New(netip.MustParseAddr("127.0.0.1"), slog.New(slog.DiscardHandler))
	known := make(chan struct{}, 1)
	done := make(chan struct{}, 2)
	go func() { server.Serve(ctx, listener); done <- struct{}{} }()
	go func() {
		FollowZone(ctx, ZoneOptions{Cluster: connect(t, c, token), Logger: slog.New(slog.DiscardHandler), Set: func(z *clusterdns.Zone) {
			server.SetZone(z)
			select {
			case known <- struct{}{}:
			default:
			}
		}})
		done <- struct{}{}
	}()
	defer func() { cancel(); <-done; <-done }()
	select {
	case <-known:
	case <-time.After(patience):
		t.Fatal("nothing is known of imports")
	}

	conns := map[string]*dns.Conn{}
	for _, at := range []string{theirs, listener.Addr().String()} {
		conn, err := dns.DialTimeout("tcp", at, patience)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns[at] = conn
	}
	ask := func(at string, q dns.Question) reply {
		m := new(dns.Msg)
		m.SetQuestion(q.Name, q.Qtype)
		got, _, err := (&dns.Client{Net: "tcp", Timeout: patience}).ExchangeWithConn(m, conns[at])
		if err != nil {
			t.Fatalf("%s %s at %s: %v", q.Name, dns.TypeToString[q.Qtype], at, err)
		}
		return replyOf(got)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	types := []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeSRV, dns.TypeTXT, dns.TypeMX, dns.TypeCNAME, dns.TypePTR, dns.TypeNS, dns.TypeSOA, dns.TypeHTTPS, dns.TypeANY, dns.TypeAXFR}
	type pair struct{ theirs, ours reply }
	got := map[dns.Question]pair{}
	for _, name := range names {
		for _, kind := range types {
			q := dns.Question{Name: name, Qtype: kind, Qclass: dns.ClassINET}
			p := pair{ask(theirs, q), ask(listener.Addr().String(), q)}
			got[q] = p
			if kind != dns.TypeSOA && p.theirs.rcode == dns.RcodeSuccess {
				a.exists[strings.ToLower(name)] = true
			}
		}
	}
	occurred := map[string]int{}
	for q, p := range got {
		if p.theirs == p.ours {
			continue
		}
		i := slices.IndexFunc(differences, func(d difference) bool { return d.is(q, p.theirs, p.ours, a) })
		if i < 0 {
			t.Errorf("%s %s: CoreDNS says %+v, and ours %+v", q.Name, dns.TypeToString[q.Qtype], p.theirs, p.ours)
			continue
		}
		occurred[differences[i].why]++
	}
	for _, d := range differences {
		if t.Logf("%d times: %s", occurred[d.why], d.why); occurred[d.why] == 0 {
			t.Errorf("this difference is none: %s", d.why)
		}
	}
	if len(got) < 1000 {
		t.Errorf("only %d questions were asked", len(got))
	}
}
