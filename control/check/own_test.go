package check

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
)

func publicOwn() Own {
	return Own{Name: "edge", Shown: catalogue.Shown{Port: 51820, NAT: catalogue.NAT{Mapping: "none", Filtering: "none"},
		Candidates: []catalogue.Candidate{{Address: publicEdge, Source: api.SourceAdvertised}}},
		Networks: []netip.Prefix{netip.MustParsePrefix("192.168.1.10/24")}}
}

func TestExposureVerdicts(t *testing.T) {
	well := standing{working: 1}
	advertised := func(addrs ...string) func(*Own) {
		return func(o *Own) {
			o.Candidates = nil
			for _, a := range addrs {
				o.Candidates = append(o.Candidates, catalogue.Candidate{Address: a, Source: api.SourceAdvertised})
			}
		}
	}
	natted := func(o *Own) {
		o.NAT = catalogue.NAT{Mapping: "address-dependent", Filtering: "address-dependent"}
		o.Candidates = []catalogue.Candidate{{Address: "192.168.1.10:51820", Source: api.SourceHost}, {Address: "203.0.113.9:4711", Source: api.SourceSTUN}}
	}
	for _, c := range []struct {
		name  string
		own   func(*Own)
		peers standing
		code  catalogue.Code
		cause string
	}{
		{"a public address", nil, well, "", ""},
		{"a public address and a peer that fails", nil, standing{failing: 1}, "", ""},
		{"a private address that no peer uses", advertised("10.0.0.5:51820"), standing{}, catalogue.PrivateAdvertised, "10.0.0.5:51820 (private)"},
		{"a private address with a peer that fails", advertised("10.0.0.5:51820"), standing{working: 1, failing: 1}, catalogue.PrivateAdvertised, "nobody outside"},
		{"a private address that serves every peer", advertised("10.0.0.5:51820"), well, "", ""},
		{"a private address of this host", advertised("192.168.1.10:51820"), standing{}, "", ""},
		{"the same with a peer that fails", advertised("192.168.1.10:51820"), standing{failing: 1}, catalogue.PrivateAdvertised, "192.168.1.10:51820"},
		{"carrier-grade NAT", advertised("100.64.3.4:51820"), standing{}, catalogue.PrivateAdvertised, "carrier-grade NAT"},
		{"unique local", advertised("[fd00:1::1]:51820"), standing{}, catalogue.PrivateAdvertised, "unique local"},
		{"loopback, though all is well", advertised("127.0.0.1:51820"), well, catalogue.PrivateAdvertised, "loopback"},
		{"link-local, though all is well", advertised("[fe80::1]:51820"), well, catalogue.PrivateAdvertised, "link-local"},
		{"a private address of the Service beside a public one, and a peer that fails", func(o *Own) {
			o.Candidates = append(o.Candidates, catalogue.Candidate{Address: "10.0.0.5:30820", Source: api.SourceService})
		}, standing{failing: 1}, "", ""},
		{"a NAT from behind which peers are dialled", natted, well, "", ""},
		{"a NAT and a peer that must dial", natted, standing{failing: 1, waiting: []string{"cloud"}}, catalogue.NoWayIn, "cloud would have to"},
		{"a NAT that is not known", func(o *Own) { natted(o); o.NAT = catalogue.NAT{} }, standing{failing: 1, waiting: []string{"cloud"}}, "", ""},
		{"a public address and a peer that must dial", nil, standing{failing: 1, waiting: []string{"cloud"}}, "", ""},
		{"a NAT with a relay and a peer that must dial", func(o *Own) {
			natted(o)
			o.Candidates = append(o.Candidates, catalogue.Candidate{Address: "192.0.2.1:50000", Source: api.SourceRelay})
		}, standing{failing: 1, waiting: []string{"cloud"}}, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := publicOwn()
			if c.own != nil {
				c.own(&o)
			}
			r := Exposure(o, c.peers)
			if r.Name != NameExposure || r.Code != c.code || !strings.Contains(r.Verdict().Cause, c.cause) {
				t.Errorf("got %s %s (%s), want %s with %q", r.Outcome, r.Code, r.Verdict().Cause, c.code, c.cause)
			}
			if c.code != "" && (r.Verdict().Fix == "" || !strings.Contains(r.Verdict().Fix, "spec.discovery.advertise")) {
				t.Errorf("the fix names no setting: %s", r.Verdict().Fix)
			}
		})
	}
}

// A fix does not advise what is already set, but what else is wrong.
func TestNoFixSetsWhatIsSet(t *testing.T) {
	o := publicOwn()
	o.Candidates = append(o.Candidates, catalogue.Candidate{Address: "127.0.0.1:51820", Source: api.SourceAdvertised})
	o.Advertised = []string{publicEdge, "127.0.0.1:51820"}
	want := "take 127.0.0.1:51820 out of spec.discovery.advertise, which has " + publicEdge + " already"
	if v := Exposure(o, standing{}).Verdict(); v.Code != string(catalogue.PrivateAdvertised) || !strings.Contains(v.Fix, want) {
		t.Errorf("got %s: %s", v.Code, v.Fix)
	}
}

func TestServersAreUnreachableIfNoneOfTheirAddressesAnswers(t *testing.T) {
	o := publicOwn()
	if len(STUNServers(o)) > 0 {
		t.Error("a check of no servers")
	}
	o.STUN = []Server{{Name: "stun.example.net:3478", Address: "192.0.2.1:3478"},
		{Name: "stun.example.net:3478", Address: "[2001:db8::1]:3478", Err: "network is unreachable"}}
	if r := STUNServers(o); len(r) != 1 || r[0].Outcome != api.OK {
		t.Errorf("one address answers: got %+v", r)
	}
	lied := o
	lied.STUN = nil
	for i, a := range []string{"203.0.113.9", "203.0.113.9", "192.0.2.77"} {
		lied.STUN = append(lied.STUN, Server{Name: fmt.Sprintf("stun%d.example.net:3478", i), Address: fmt.Sprintf("192.0.2.%d:3478", i+1),
			Mapped: netip.MustParseAddr(a), Agreed: netip.MustParseAddr("203.0.113.9")})
	}
	if all := STUNServers(lied); len(all) != 2 || all[1].Code != catalogue.StunOutvoted || all[1].Outcome != api.Warning ||
		!strings.Contains(all[1].Verdict().Cause, "stun2.example.net:3478 (192.0.2.3:3478) sees this gateway at 192.0.2.77, while the others agree on 203.0.113.9") {
		t.Errorf("of a server that is outvoted: got %+v", all)
	}
	once := o
	once.STUN = append(once.STUN[:1:1], Server{Name: "other.example.net:3478", Address: "192.0.2.2:3478", Err: "no answer in 3 s", At: time.Now(), Failures: 1})
	if r := STUNServers(once); r[0].Outcome != api.OK {
		t.Errorf("a server that did not answer once: got %+v", r[0])
	}
	o.STUN = append(o.STUN, Server{Name: "other.example.net:3478", Address: "192.0.2.2:3478", Err: "no answer in 3 s"})
	r := STUNServers(o)[0]
	if r.Code != catalogue.StunUnreachable || !strings.Contains(r.Verdict().Cause, "other.example.net:3478 (192.0.2.2:3478)") ||
		!strings.Contains(r.Verdict().Fix, "ip daddr 192.0.2.2 udp dport 3478") {
		t.Errorf("got %+v", r.Verdict())
	}
	o.TURN = []Server{{Name: "turn.example.net:3478", Err: "401 wrong credentials"}}
	r = TURNServers(o)[0]
	if r.Code != catalogue.TurnUnreachable || r.Outcome != api.Warning || !strings.Contains(r.Verdict().Cause, "401 wrong credentials") {
		t.Errorf("got %+v", r.Verdict())
	}
}

// Each fault of a relay is fixed in a different place, and so is each cause why this gateway does
// not reach a STUN server.
func TestAServersFixFollowsFromItsFault(t *testing.T) {
	const at = "192.0.2.60:3478"
	const noWay = "see the route to it here, and its next hop: `ip route get 192.0.2.60`"
	now := time.Now()
	for _, c := range []struct {
		failure   catalogue.Failure
		refused   []Refusal
		fix, stun string
	}{
		{catalogue.FailureTimeout, nil, "let UDP and TCP to it out (security group: outbound UDP 3478 to 192.0.2.60/32): `nft insert rule inet filter output ip daddr 192.0.2.60 udp dport 3478 accept`", "let UDP to it out"},
		{catalogue.FailureTimeout, []Refusal{{To: "192.0.2.61:3478", Reason: portUnreachable, At: now}}, "let UDP and TCP to it out", "let UDP to it out"},
		{catalogue.FailureTimeout, []Refusal{{To: at, Reason: portUnreachable, At: now}}, "nothing listens there: start it", "nothing listens there: start it"},
		{catalogue.FailureTimeout, []Refusal{{To: at, Reason: portUnreachable, By: "192.0.2.60", At: now}}, "nothing listens there: start it", "nothing listens there: start it"},
		{catalogue.FailureTimeout, []Refusal{{To: at, Reason: portUnreachable, By: "192.168.1.1", At: now}}, "let UDP and TCP to it out", "let UDP to it out"},
		{catalogue.FailureTimeout, []Refusal{{To: at, Reason: prohibited, By: "192.168.1.1", At: now}}, "let UDP and TCP to it out", "let UDP to it out"},
		{catalogue.FailureTimeout, []Refusal{{To: at, Reason: networkUnreachable, Here: true, At: now}}, noWay, noWay},
		{catalogue.FailureTimeout, []Refusal{{To: at, Reason: hostUnreachable, Here: true, At: now}}, noWay, noWay},
		{catalogue.FailureTimeout, []Refusal{{To: at, Reason: networkUnreachable, By: "192.168.1.1", At: now}}, noWay, noWay},
		{catalogue.FailureTimeout, []Refusal{{To: at, Reason: networkUnreachable, Here: true, At: now.Add(-refusalLife)}}, "let UDP and TCP to it out", "let UDP to it out"},
		{catalogue.FailureTimeout, []Refusal{{To: at, Reason: "operation not permitted", Here: true, At: now}}, "let UDP and TCP to it out", "let UDP to it out"},
		{catalogue.FailureRejected, []Refusal{{To: at, Reason: networkUnreachable, Here: true, At: now}}, "correct username and passwordFile", ""},
		{catalogue.FailureCertificate, nil, "renew the server's certificate", ""},
		{"", nil, "do what its answer says", ""},
	} {
		o := publicOwn()
		o.TURN, o.Refused = []Server{{Name: at, Address: at, Err: "why", Failure: c.failure}}, c.refused
		o.STUN = o.TURN
		if v := STUNServers(o)[0].Verdict(); c.stun != "" && !strings.HasPrefix(v.Fix, c.stun) {
			t.Errorf("%q, %v: got the fix of a STUN server %q, want %q", c.failure, c.refused, v.Fix, c.stun)
		}
		if v := TURNServers(o)[0].Verdict(); !strings.HasPrefix(v.Fix, c.fix) || !strings.Contains(v.Cause, "why") {
			t.Errorf("%q, %v: got the fix %q, want %q", c.failure, c.refused, v.Fix, c.fix)
		}
	}
}

func TestClocks(t *testing.T) {
	for _, c := range []struct {
		name  string
		peers []skew
		cause string
	}{
		{"no peers", nil, ""},
		{"within a minute", []skew{{"cloud", -50 * time.Second}}, ""},
		{"one is ahead", []skew{{"cloud", 3 * time.Minute}}, "the clock of cloud is 3m0s ahead of this gateway's; these two alone"},
		{"one is behind, others agree with us", []skew{{"a", 0}, {"cloud", -time.Hour}}, "the clock of cloud is 1h0m0s behind this gateway's, and the clock of a agrees with this gateway's"},
		{"a server agrees with a peer", []skew{{"cloud", time.Hour}, {"this gateway's API server", time.Hour - 2*time.Second}}, "the clocks of cloud, this gateway's API server agree with each other"},
		{"all agree against us", []skew{{"a", 1801 * time.Second}, {"b", 1800 * time.Second}}, "it is this gateway's clock that is wrong"},
		{"they differ among themselves", []skew{{"a", time.Hour}, {"b", -2 * time.Hour}}, "do not show which is wrong"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := Clock(c.peers)
			if c.cause == "" {
				if r.Outcome != api.OK {
					t.Errorf("got %+v", r.Verdict())
				}
				return
			}
			if r.Outcome != api.Warning || r.Code != catalogue.ClockSkew || !strings.Contains(r.Verdict().Cause, c.cause) {
				t.Errorf("got %+v, want a cause with %q", r.Verdict(), c.cause)
			}
		})
	}
}

// A server shows its clock in every answer.
func TestServersShowTheirClocks(t *testing.T) {
	s := newSite(t)
	conf := s.conf(t, s.ca, catalogue.DefaultServerName)
	address := serveTLS(t, conf, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", time.Now().Add(3*time.Hour).UTC().Format(http.TimeFormat))
		live(w, r)
	})
	f := CheckUpstreams(t.Context(), Network{}, []Upstream{{Service: api.ServiceAPIServer, Address: address, TLS: true, CA: s.ca.CertPEM()}})
	if f[0].Outcome != api.OK || (f[0].Skew-3*time.Hour).Abs() > time.Minute {
		t.Fatalf("got %s %s, %s ahead", f[0].Outcome, f[0].Code, f[0].Skew)
	}
	if c := Clock(clocks(f)); c.Code != catalogue.ClockSkew || !strings.Contains(c.Verdict().Cause, "ahead of this gateway's; these two alone do not show which is wrong") {
		t.Errorf("got %+v", c.Verdict())
	}
}

func file(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }

func TestLimitsOfEitherVersionOfControlGroups(t *testing.T) {
	for _, c := range []struct {
		name string
		root fstest.MapFS
		want usage
	}{
		{"none", fstest.MapFS{}, usage{}},
		{"version 2, in a container", fstest.MapFS{
			"proc/self/cgroup":               file("0::/\n"),
			"sys/fs/cgroup/memory.current":   file("200000000\n"),
			"sys/fs/cgroup/memory.max":       file("209715200\n"),
			"sys/fs/cgroup/memory.stat":      file("anon 1\ninactive_file 100000000\n"),
			"sys/fs/cgroup/cpu.max":          file("50000 100000\n"),
			"sys/fs/cgroup/cpu.stat":         file("usage_usec 9\nnr_periods 600\nnr_throttled 30\n"),
			"sys/fs/cgroup/memory/ignored.x": file("1"),
		}, usage{memory: 100000000, limit: 209715200, limited: true, periods: 600, throttled: 30}},
		{"version 2, a unit of systemd without limits", fstest.MapFS{
			"proc/self/cgroup": file("0::/system.slice/postern.service\n"),
			"sys/fs/cgroup/system.slice/postern.service/memory.current": file("5\n"),
			"sys/fs/cgroup/system.slice/postern.service/memory.max":     file("max\n"),
			"sys/fs/cgroup/system.slice/postern.service/cpu.max":        file("max 100000\n"),
		}, usage{unit: "postern.service"}},
		{"version 1, a unit of systemd", fstest.MapFS{
			"proc/self/cgroup": file("5:memory:/system.slice/edge.service\n1:name=systemd:/system.slice/edge.service\n"),
		}, usage{unit: "edge.service"}},
		{"a session, or a container", fstest.MapFS{"proc/self/cgroup": file("0::/system.slice/docker-0123.scope\n")}, usage{}},
		{"a name that is no word", fstest.MapFS{"proc/self/cgroup": file("0::/system.slice/a;reboot.service\n")}, usage{}},
		{"version 1", fstest.MapFS{
			"proc/self/cgroup": file("7:cpu,cpuacct:/docker/x\n5:memory:/docker/x\n"),
			"sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes": file("1000\n"),
			"sys/fs/cgroup/memory/docker/x/memory.usage_in_bytes": file("950\n"),
			"sys/fs/cgroup/memory/docker/x/memory.stat":           file("total_inactive_file 10\n"),
			"sys/fs/cgroup/cpu/cpu.cfs_quota_us":                  file("20000\n"),
			"sys/fs/cgroup/cpu/cpu.stat":                          file("nr_periods 4\nnr_throttled 1\n"),
		}, usage{memory: 940, limit: 1000, limited: true, periods: 4, throttled: 1}},
		{"version 1 without limits", fstest.MapFS{
			"sys/fs/cgroup/memory/memory.limit_in_bytes": file("9223372036854771712\n"),
			"sys/fs/cgroup/memory/memory.usage_in_bytes": file("950\n"),
			"sys/fs/cgroup/cpu/cpu.cfs_quota_us":         file("-1\n"),
		}, usage{}},
		{"nonsense", fstest.MapFS{
			"proc/self/cgroup":             file("::\n0\n0::/../../etc\nx"),
			"sys/fs/cgroup/memory.current": file("much"),
			"sys/fs/cgroup/memory.max":     file("\x00"),
			"sys/fs/cgroup/cpu.max":        file(""),
			"sys/fs/cgroup/cpu.stat":       file("nr_periods -1\nnr_throttled\n"),
		}, usage{limited: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got usage
			readCgroup(c.root, &got)
			if got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// Counters are compared over a minute or two; what was counted before the first sample is ignored.
func TestResourceVerdicts(t *testing.T) {
	const big = 4 << 20
	type moment struct {
		buffer             int
		drops              uint64
		periods, throttled string
		memory             string
		refused            uint64
	}
	calm := moment{big, 5000, "1000", "900", "10", 70}
	for _, c := range []struct {
		name   string
		second moment
		want   map[string]catalogue.Code
		words  []string
	}{
		{"nothing happened", calm, nil, nil},
		{"a small buffer", moment{64 << 10, 5000, "1000", "900", "10", 70}, map[string]catalogue.Code{NameResources: catalogue.SocketBufferSmall}, []string{"64 KiB", "`sysctl -w net.core.rmem_max=4194304"}},
		{"what Linux grants by itself", moment{212992, 5000, "1000", "900", "10", 70}, nil, nil},
		{"a few drops", moment{big, 5009, "1000", "900", "10", 70}, nil, nil},
		{"many drops", moment{big, 5300, "1000", "900", "10", 70}, map[string]catalogue.Code{NameResources: catalogue.SocketBufferSmall}, []string{"overflowed", "300 datagrams"}},
		{"throttled", moment{big, 5000, "1200", "1000", "10", 70}, map[string]catalogue.Code{NameCPU: catalogue.CPUThrottled}, []string{"100 of 200 periods", "resources.limits.cpu"}},
		{"throttled in few periods", moment{big, 5000, "1040", "940", "10", 70}, nil, nil},
		{"memory near its limit", moment{big, 5000, "1000", "900", "943718400", 70}, map[string]catalogue.Code{NameMemory: catalogue.MemoryNear}, []string{"900.0 MiB of its memory limit of 1000.0 MiB", "resources.limits.memory: 1501Mi"}},
		{"some sends are refused", moment{big, 5000, "1000", "900", "10", 80}, map[string]catalogue.Code{NameSending: catalogue.SendFails},
			[]string{"refused at least 10 datagrams in the last 1m0s", "no buffer space", "`ip -s link`"}},
		{"few sends are refused", moment{big, 5000, "1000", "900", "10", 79}, nil, nil},
		{"all at once", moment{1024, 5000, "1200", "1000", "943718400", 70},
			map[string]catalogue.Code{NameResources: catalogue.SocketBufferSmall, NameCPU: catalogue.CPUThrottled, NameMemory: catalogue.MemoryNear}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s resources
			now := time.Now()
			look := func(m moment, at time.Time) []verdict.Finding {
				o := publicOwn()
				o.Sockets = Sockets{ReceiveBuffer: m.buffer, Drops: m.drops, Refused: m.refused, RefusedBecause: noBuffers}
				root := fstest.MapFS{"sys/fs/cgroup/memory.current": file(m.memory), "sys/fs/cgroup/memory.max": file("1048576000"),
					"sys/fs/cgroup/cpu.max": file("1 1"), "sys/fs/cgroup/cpu.stat": file("nr_periods " + m.periods + "\nnr_throttled " + m.throttled)}
				return s.judge(o, s.sample(root, o, at), at)
			}
			for _, r := range look(calm, now) {
				if r.Outcome != api.OK {
					t.Errorf("at first: got %+v", r.Verdict())
				}
			}
			text := ""
			for _, r := range look(c.second, now.Add(window)) {
				if r.Code != c.want[r.Name] {
					t.Errorf("%s: got %+v, want %s", r.Name, r.Verdict(), c.want[r.Name])
				}
				text += r.Verdict().Cause + r.Verdict().Fix
			}
			for _, w := range c.words {
				if !strings.Contains(text, w) {
					t.Errorf("the text lacks %q: %s", w, text)
				}
			}
			// Two windows later it is over, except for lasting problems.
			look(c.second, now.Add(2*window))
			for _, r := range look(c.second, now.Add(3*window)) {
				if r.Name == NameCPU && r.Outcome != api.OK || r.Name == NameResources && c.second.buffer == big && r.Outcome != api.OK {
					t.Errorf("later: %s is %+v", r.Name, r.Verdict())
				}
			}
		})
	}
}

// What the reverse path filter discarded in the last minute or two is known to every check of a peer.
func TestWhatTheReversePathFilterDiscards(t *testing.T) {
	now := time.Now()
	netstat := func(text string) fstest.MapFS { return fstest.MapFS{"proc/self/net/netstat": file(text)} }
	for _, c := range []struct {
		name, before, after string
		want                uint64
	}{
		{"some", "TcpExt: SyncookiesSent IPReversePathFilter TW\nTcpExt: 1 23 4\nIpExt: InNoRoutes\nIpExt: 5\n",
			"TcpExt: SyncookiesSent IPReversePathFilter TW\nTcpExt: 1 40 4\nIpExt: InNoRoutes\nIpExt: 9\n", 17},
		{"another kernel", "TcpExt: SyncookiesSent\nTcpExt: 1\n", "TcpExt: SyncookiesSent\nTcpExt: 2\n", 0},
		{"no values", "TcpExt: SyncookiesSent IPReversePathFilter\nTcpExt: 1\n", "TcpExt: SyncookiesSent IPReversePathFilter\n", 0},
	} {
		var s resources
		s.sample(netstat(c.before), Own{}, now)
		u := s.sample(netstat(c.after), Own{}, now.Add(30*time.Second))
		if got := since(u.filtered, s.older.filtered); got != c.want {
			t.Errorf("%s: %d were discarded, want %d", c.name, got, c.want)
		}
	}
}
