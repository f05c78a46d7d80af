package predict

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/postern-dev/postern/control/api"
)

const (
	portRestrictedNAT = "nat: {mapping: endpoint-independent, filtering: address-and-port-dependent}"
	poisonableNAT     = "nat: {mapping: endpoint-independent, filtering: address-and-port-dependent, answersStrays: true}"
	addressNAT        = "nat: {mapping: endpoint-independent, filtering: address-dependent}"
	fullConeNAT       = "nat: {mapping: endpoint-independent, filtering: endpoint-independent}"
	symmetricNAT      = "nat: {mapping: address-and-port-dependent, filtering: address-and-port-dependent}"
)

// cluster returns a document; auth, API server and gateway are in flow style.
func cluster(name, auth, apiServer, gateway string, more ...string) string {
	return "name: " + name + "\nauth: {" + auth + "}\napiServer: {" + apiServer + "}\ngateway: {" + gateway + "}\n" + strings.Join(more, "\n") + "\n"
}

// scenario is a typical pair of clusters, or a pitfall.
type scenario struct {
	name string
	a, b string
	// inBand and outOfBand are the answers, path the gateways' path.
	inBand, outOfBand Answer
	path, dialer      string
	// says must be in the reasons, needs and fixes of out-of-band or in-band.
	says []string
}

const (
	lb           = `exposure: LoadBalancer, address: "203.0.113.1:443"`
	lbGateway    = `exposure: LoadBalancer, addresses: ["203.0.113.2:51820"]`
	nodeGateway  = `exposure: NodePort, addresses: ["198.51.100.2:31820"]`
	privateNode  = `exposure: NodePort, addresses: ["10.0.0.5:31820"]`
	ingress      = `exposure: Ingress, address: "198.51.100.3:443", tls: passthrough`
	provider     = "exposure: provider"
	publicServer = `exposure: public, address: "198.51.100.4:6443"`
	forwarded    = `exposure: port-forwarding, address: "198.51.100.9:6443"`
	forwardedUDP = `exposure: port-forwarding, addresses: ["198.51.100.9:51820"]`
	clusterIP    = "exposure: ClusterIP"
	private      = "exposure: private"
)

func scenarios() []scenario {
	cloud := func(gateway string) string { return cluster("cloud", lb, provider, gateway) }
	behind := func(nat string, more ...string) string {
		return cluster("edge", clusterIP, private, "exposure: ClusterIP, "+nat, more...)
	}
	other := func(nat string, more ...string) string {
		return strings.Replace(behind(nat, more...), "edge", "barn", 1)
	}
	return []scenario{
		// cloud – cloud
		{"cloud–cloud: LoadBalancers", cloud(lbGateway), cluster("east", lb, provider, lbGateway),
			Works, Works, PathDirect, Both, []string{"both gateways can be dialled", "auth of cloud is reached by its LoadBalancer", "apiServer of east is reached by the provider's endpoint"}},
		{"cloud–cloud: Ingress and NodePort", cloud(nodeGateway), cluster("east", ingress, provider, lbGateway),
			Works, Works, PathDirect, Both, []string{"auth of east is reached by its Ingress at 198.51.100.3:443"}},
		{"cloud–cloud: a NodePort with a private node address", cloud(privateNode), cluster("east", lb, provider, lbGateway),
			Works, Works, PathDirect, "cloud", []string{"the gateway of east can be dialled (203.0.113.2:51820), so cloud dials", "its NodePort address 10.0.0.5:31820 is private"}},
		{"cloud–cloud: both NodePorts private", cloud(privateNode + ", " + symmetricNAT), cluster("east", lb, provider, privateNode+", "+symmetricNAT),
			Fails, Fails, PathNone, "", []string{"NodePort address 10.0.0.5:31820 is private", "spec.discovery.advertise", "spec.discovery.turnServers"}},
		{"cloud–cloud: a gateway without an address yet", cloud("exposure: LoadBalancer"), cluster("east", lb, provider, privateNode),
			Conditional, Conditional, PathDirect, "east", []string{"its LoadBalancer has no address yet", "kubectl get svc"}},
		{"cloud–cloud: a private endpoint of the provider", cloud(lbGateway), cluster("east", lb, `exposure: provider, address: "10.1.0.1:443"`, lbGateway),
			Works, Fails, PathDirect, Both, []string{"the provider's endpoint 10.1.0.1:443 is private", "public endpoint"}},

		// on-premise – cloud
		{"on-premise–cloud: public IPs", cluster("prem", lb, publicServer, nodeGateway), cloud(lbGateway),
			Works, Works, PathDirect, Both, []string{"apiServer of prem is reached at 198.51.100.4:6443"}},
		{"on-premise–cloud: Ingress that ends TLS before auth", cluster("prem", strings.Replace(ingress, Passthrough, Terminated, 1), publicServer, nodeGateway), cloud(lbGateway),
			Works, Conditional, PathDirect, Both, []string{"its Ingress terminates TLS, and auth speaks TLS itself", "spec.services.auth.outOfBand.tls", "no Ingress is in the way"}},
		{"on-premise–cloud: Ingress that ends TLS before the API server", cluster("prem", ingress, "exposure: ingress, tls: terminated", nodeGateway), cloud(lbGateway),
			Works, Fails, PathDirect, Both, []string{"terminates TLS, and with it the client certificate", "ssl-passthrough"}},
		{"on-premise–cloud: Ingress that passes TLS to the API server", cluster("prem", ingress, `exposure: ingress, address: "api.example.net:443", tls: passthrough`, nodeGateway), cloud(lbGateway),
			Works, Works, PathDirect, Both, []string{"apiServer of prem is reached at api.example.net:443"}},
		{"on-premise–cloud: the API server is told by default", cluster("prem", lb, "exposure: public", nodeGateway), cloud(lbGateway),
			Works, Conditional, PathDirect, Both, []string{"first control-plane node's"}},
		{"on-premise–cloud: an Ingress for the gateway", cluster("prem", ingress, publicServer, "exposure: Ingress"), cloud(lbGateway),
			Works, Works, PathDirect, "prem", []string{"not be dialled through an Ingress: it is UDP"}},
		{"on-premise–cloud: Ingresses for both gateways", cluster("prem", ingress, publicServer, "exposure: Ingress, "+symmetricNAT), cloud("exposure: Ingress, " + symmetricNAT),
			Fails, Fails, PathNone, "", []string{"an Ingress carries HTTP, and the gateway speaks UDP", "Service of type LoadBalancer or NodePort"}},

		// on-premise behind NAT – cloud
		{"behind NAT–cloud: ports forwarded", cluster("edge", forwarded, forwarded, forwardedUDP), cloud(lbGateway),
			Works, Works, PathDirect, Both, []string{"auth of edge is reached by its port-forwarding at 198.51.100.9:6443"}},
		{"behind NAT–cloud: nothing forwarded", behind(portRestrictedNAT), cloud(lbGateway),
			Works, Fails, PathDirect, "edge", []string{"so edge dials", "auth is a ClusterIP", "only a private endpoint", "or peer in-band"}},
		{"behind NAT–cloud: NodePorts without forwarding", cluster("edge", `exposure: NodePort, address: "192.168.1.5:30443"`, `exposure: public, address: "192.168.1.5:6443"`, privateNode), cloud(lbGateway),
			Works, Fails, PathDirect, "edge", []string{"its NodePort address 192.168.1.5:30443 is private", "its address 192.168.1.5:6443 is private"}},
		{"behind NAT–cloud: forwarded ports that are not announced", cluster("edge", "exposure: port-forwarding", "exposure: port-forwarding", forwardedUDP), cloud(lbGateway),
			Works, Conditional, PathDirect, Both, []string{"the public address of the forwarded port is not given", "outOfBand.authURL", "outOfBand.apiServerURL"}},

		// same LAN
		{"same LAN: NodePorts", cluster("a", `exposure: NodePort, address: "192.168.1.5:30443"`, `exposure: public, address: "192.168.1.5:6443"`, `exposure: NodePort, addresses: ["192.168.1.5:31820"]`, "lan: home"),
			cluster("b", `exposure: NodePort, address: "192.168.1.6:30443"`, `exposure: private, address: "192.168.1.6:6443"`, `exposure: NodePort, addresses: ["192.168.1.6:31820"]`, "lan: home"),
			Works, Works, PathDirect, Both, []string{"both are on the LAN home, where private addresses can be dialled"}},
		{"same LAN: nothing announced", behind("", "lan: home"), other("", "lan: home"),
			Conditional, Fails, PathDirect, Both, []string{"spec.discovery.lan.enabled: true", "the host's network"}},
		{"two LANs: NodePorts", cluster("a", `exposure: NodePort, address: "192.168.1.5:30443"`, publicServer, `exposure: NodePort, addresses: ["192.168.1.5:31820"], `+symmetricNAT, "lan: home"),
			cluster("b", lb, provider, `exposure: NodePort, addresses: ["192.168.1.6:31820"], `+symmetricNAT, "lan: office"),
			Fails, Fails, PathNone, "", []string{"is private"}},

		// two NATs
		{"two NATs: full cone", behind(fullConeNAT), other(symmetricNAT), Works, Fails, PathDirect, "barn", []string{"barn dials the address at which a STUN server sees edge"}},
		{"two NATs: address-restricted, no relay", behind(addressNAT), other(symmetricNAT), Conditional, Fails, PathDirect, Both, []string{"postern accept"}},
		{"two NATs: address-restricted, a relay", behind(addressNAT, "relay: true"), other(portRestrictedNAT), Works, Fails, PathDirect, Both, []string{"opens both NATs"}},
		{"two NATs: port-restricted, a relay", behind(portRestrictedNAT), other(portRestrictedNAT, "relay: true"), Works, Fails, PathDirect, Both, nil},
		{"two NATs: one answers strays, a relay", behind(portRestrictedNAT), other(poisonableNAT, "relay: true"), Works, Fails, PathPunch, Both, []string{"in the right order"}},
		{"two NATs: one answers strays, no relay", behind(portRestrictedNAT), other(poisonableNAT), Fails, Fails, PathNone, "", []string{"requires a relay", "spec.discovery.turnServers"}},
		{"two NATs: symmetric, a relay", behind(symmetricNAT, "relay: true"), other(symmetricNAT), Works, Fails, PathRelay, Both, []string{"the relay carries everything"}},
		{"two NATs: symmetric and port-restricted, no relay", behind(symmetricNAT), other(portRestrictedNAT), Fails, Fails, PathNone, "", []string{"there is no relay", "spec.discovery.advertise"}},
		{"two NATs of unknown behaviour, no relay", behind("nat: {}"), other("nat: {}"), Conditional, Fails, PathNone, "", []string{"postern netcheck", "unknown behaviour"}},
		{"two NATs of unknown behaviour, a relay", behind("nat: {}", "relay: true"), other("nat: {}"), Works, Fails, PathRelay, Both, []string{"the worst is assumed"}},
	}
}

func TestEveryScenarioHasItsAnswerAndReason(t *testing.T) {
	for _, c := range scenarios() {
		a, b, err := Read("two.yaml", []byte(c.a+"---\n"+c.b))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		p := Predict(a, b)
		in, out := p.Mode(api.ModeInBand), p.Mode(api.ModeOutOfBand)
		if in.Answer != c.inBand || out.Answer != c.outOfBand || in.Path.Kind != c.path || in.Path.Dialer != c.dialer {
			t.Errorf("%s: in-band %s, out-of-band %s, %s by %q; want %s, %s, %s by %q\n%s", c.name,
				in.Answer, out.Answer, in.Path.Kind, in.Path.Dialer, c.inBand, c.outOfBand, c.path, c.dialer, p.Text(80))
		}
		text := strings.Join(strings.Fields(p.Text(80)), " ")
		for _, word := range c.says {
			if !strings.Contains(text, word) {
				t.Errorf("%s: it does not say %q:\n%s", c.name, word, p.Text(80))
			}
		}
		mirrored(t, c, a, b)
		wellFormed(t, c.name, p)
		fits(t, c.name, p)
	}
}

// mirrored checks that the order of the clusters does not matter.
func mirrored(t *testing.T, c scenario, a, b Exposure) {
	t.Helper()
	p := Predict(b, a)
	if in, out := p.Mode(api.ModeInBand), p.Mode(api.ModeOutOfBand); in.Answer != c.inBand || out.Answer != c.outOfBand || in.Path.Kind != c.path || in.Path.Dialer != c.dialer {
		t.Errorf("%s: the other way round, in-band is %s and out-of-band %s, %s by %q", c.name, in.Answer, out.Answer, in.Path.Kind, in.Path.Dialer)
	}
}

// wellFormed checks that each failure has a reason and a fix.
func wellFormed(t *testing.T, name string, p Prediction) {
	t.Helper()
	for _, m := range p.Modes {
		if (m.Answer == Works) != (len(m.Needs) == 0) || len(m.Reasons) == 0 {
			t.Errorf("%s: %s %s with needs %v and reasons %v", name, m.Mode, m.Answer, m.Needs, m.Reasons)
		}
		for _, n := range m.Needs {
			if n.Cluster == "" || n.Service == "" || n.Lacks == "" || n.Fix == "" {
				t.Errorf("%s: incomplete need: %+v", name, n)
			}
		}
	}
	if b, err := json.Marshal(p); err != nil || strings.Contains(string(b), ":null") {
		t.Errorf("%s: as JSON it is %s (%v)", name, b, err)
	}
}

// fits checks that no line is wider than a terminal.
func fits(t *testing.T, name string, p Prediction) {
	t.Helper()
	for _, line := range strings.Split(p.Text(80), "\n") {
		if utf8.RuneCountInString(line) > 80 {
			t.Errorf("%s: a line of %d characters: %s", name, utf8.RuneCountInString(line), line)
		}
	}
}

// The table is the one of discovery/path/README.md, read in both directions.
func TestTheTableOfPairsIsSymmetrical(t *testing.T) {
	want := map[[2]openness]outcome{
		{portRestricted, straysAnswered}: punch, {straysAnswered, straysAnswered}: punch,
		{portRestricted, symmetric}: relayed, {straysAnswered, symmetric}: relayed, {symmetric, symmetric}: relayed,
	}
	for a := dial; a <= symmetric; a++ {
		for b := a; b <= symmetric; b++ {
			if table(a, b) != want[[2]openness{a, b}] || table(b, a) != table(a, b) {
				t.Errorf("%v × %v is %d and %d, want %d", a, b, table(a, b), table(b, a), want[[2]openness{a, b}])
			}
		}
	}
}
