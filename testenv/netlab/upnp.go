//go:build linux

package netlab

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// UPnPOptions configure miniupnpd on a router. The router's outer address must be public:
// miniupnpd refuses mappings behind private and documentation addresses.
type UPnPOptions struct {
	// NoPCP closes port 5351, which leaves only UPnP IGD.
	NoPCP bool
	// NoUPnP leaves only PCP and NAT-PMP.
	NoUPnP bool
	// Refuse makes it refuse all mappings.
	Refuse bool
	// Lifetime is the maximum lease in seconds; 0 means a day.
	Lifetime int
	// Claim is the outer address that it reports; zero means the real one.
	Claim netip.Addr
}

// UPnP is miniupnpd on a router: PCP, NAT-PMP and UPnP IGD, with its mappings in nftables.
type UPnP struct {
	nat  *NAT
	args []string
	line string // of its log, when it is ready
	proc *Process
}

const upnpTable = "miniupnpd"

// PortMapped makes a NAT accept what miniupnpd forwards: for [NATOptions].Firewall.
func PortMapped() string { return `iifname "` + wanInterface + `" ct status dnat accept` }

// upnpRules are the chains that miniupnpd fills (its nft_init.sh).
const upnpRules = `table inet ` + upnpTable + ` {
  chain forward { type filter hook forward priority filter; jump miniupnpd; }
  chain miniupnpd {}
  chain prerouting { type nat hook prerouting priority dstnat; jump prerouting_miniupnpd; }
  chain prerouting_miniupnpd {}
  chain postrouting { type nat hook postrouting priority srcnat; jump postrouting_miniupnpd; }
  chain postrouting_miniupnpd {}
}
`

// StartUPnP starts miniupnpd on the router for the duration of the test, and waits until it
// listens.
func (n *NAT) StartUPnP(o UPnPOptions) *UPnP {
	t := n.lab.t
	t.Helper()
	n.mustRun(upnpRules, "nft", "-f", "-")
	dir, err := os.MkdirTemp("", "upnp")
	if err != nil {
		t.Fatalf("netlab: a folder for miniupnpd: %v", err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("netlab: remove miniupnpd's files: %v", err)
		}
	})
	file := filepath.Join(dir, "miniupnpd.conf")
	if err := os.WriteFile(file, []byte(upnpConfig(n.options, o)), 0o600); err != nil {
		t.Fatalf("netlab: miniupnpd's configuration: %v", err)
	}
	u := &UPnP{
		nat: n, line: "Listening for NAT-PMP/PCP traffic",
		args: []string{"miniupnpd", "-d", "-f", file, "-P", filepath.Join(dir, "pid")},
	}
	if o.NoPCP {
		u.line = "HTTP listening on port"
	}
	u.Start()
	return u
}

func upnpConfig(n NATOptions, o UPnPOptions) string {
	yes := map[bool]string{true: "yes", false: "no"}
	allow := fmt.Sprintf("allow 1024-65535 %s 1024-65535\n", n.LAN.prefix)
	if o.Refuse {
		allow = ""
	}
	lifetime, claim := cmp.Or(o.Lifetime, 86400), ""
	if o.Claim.IsValid() {
		claim = "ext_ip=" + o.Claim.String()
	}
	return strings.Join([]string{
		claim, "ext_ifname=" + wanInterface, "listening_ip=" + lanInterface, "http_port=5000",
		"enable_natpmp=" + yes[!o.NoPCP], "enable_upnp=" + yes[!o.NoUPnP], "secure_mode=yes",
		"upnp_table_name=" + upnpTable, "upnp_nat_table_name=" + upnpTable, "upnp_forward_chain=miniupnpd",
		"upnp_nat_chain=prerouting_miniupnpd", "upnp_nat_postrouting_chain=postrouting_miniupnpd",
		"uuid=00000000-0000-0000-0000-000000000001", "min_lifetime=20", fmt.Sprintf("max_lifetime=%d", lifetime),
		allow + "deny 0-65535 0.0.0.0/0 0-65535", "",
	}, "\n")
}

// Stop kills the daemon and removes its mappings, as when a router restarts.
func (u *UPnP) Stop() {
	u.nat.lab.t.Helper()
	u.proc.Kill()
	u.nat.mustRun("flush chain inet "+upnpTable+" miniupnpd\n"+
		"flush chain inet "+upnpTable+" prerouting_miniupnpd\n"+
		"flush chain inet "+upnpTable+" postrouting_miniupnpd\n", "nft", "-f", "-")
}

// Start starts the daemon, also after Stop, and waits until it listens.
func (u *UPnP) Start() {
	t := u.nat.lab.t
	t.Helper()
	u.proc = u.nat.Start(Command{Args: u.args})
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	if _, err := u.proc.WaitStderr(ctx, func(log string) bool { return strings.Contains(log, u.line) }); err != nil {
		t.Fatalf("netlab: miniupnpd on %s: %v", u.nat.name, err)
	}
}

// Log returns the log of the running daemon.
func (u *UPnP) Log() string { return u.proc.Stderr() }

// Mappings returns the translating rules, one for each mapping, as nft prints them.
func (u *UPnP) Mappings(ctx context.Context) ([]string, error) {
	out, err := u.nat.Run(ctx, "nft", "list", "chain", "inet", upnpTable, "prerouting_miniupnpd")
	if err != nil {
		return nil, err
	}
	var rules []string
	for line := range strings.Lines(out) {
		if line = strings.TrimSpace(line); strings.Contains(line, " dnat ") {
			rules = append(rules, line)
		}
	}
	return rules, nil
}
