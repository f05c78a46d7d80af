package main

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/config"
	dnssd "github.com/postern-dev/postern/discovery/dns"
	"github.com/postern-dev/postern/tui"
	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	// defaultRecordTTL is how long others may use old addresses after a change.
	defaultRecordTTL = 5 * time.Minute
	minRecordTTL     = 5 * time.Second
	maxRecordTTL     = 24 * time.Hour
)

// recordOptions are the flags of dns-records.
type recordOptions struct {
	domain, host string
	ttl          time.Duration
	private      bool
}

func (a *app) dnsRecordsCommand() *cobra.Command {
	var o recordOptions
	c := &cobra.Command{
		Use:   "dns-records",
		Short: "Print the DNS records that let other gateways find this one",
		Long: "Print the DNS records that let other gateways find this one, ready to paste into a zone file: PTR, SRV " +
			"and TXT with the public key, and the addresses that can be dialled from outside. A gateway that finds " +
			"this one must still be invited, or approve it. Without --domain the names are relative to the zone. " +
			"Instructions, and the reason for each missing address, go to stderr. Exits with 1 if there is no address " +
			"to announce.",
		Example: "  postern dns-records --domain example.com",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if o.ttl < minRecordTTL || o.ttl > maxRecordTTL {
				return usagef("", "--ttl %v is outside %v to %v", o.ttl, minRecordTTL, maxRecordTTL)
			}
			if o.domain != "" {
				if err := dnssd.CheckDomain(o.domain); err != nil {
					return usagef("such as --domain example.com", "--domain: %v", err)
				}
			}
			client := a.client()
			if _, err := client.NetCheck(c.Context()); err != nil { // queries servers and router again
				return err
			}
			s, err := client.Status(c.Context())
			if err != nil {
				return err
			}
			values, err := client.Config(c.Context())
			if err != nil {
				return err
			}
			names, literal := advertised(values)
			return a.printRecords(s.Gateway, names, literal, o)
		},
	}
	c.Flags().StringVar(&o.domain, "domain", "", "the `domain` that other gateways search (default: names relative to the zone)")
	c.Flags().StringVar(&o.host, "host", "", "the `name` of the host that has the addresses (default postern-NAME)")
	c.Flags().DurationVar(&o.ttl, "ttl", defaultRecordTTL, "how long others may cache the records")
	c.Flags().BoolVar(&o.private, "private", false, "print private addresses too, for a zone that is visible only in a private network")
	return c
}

func (a *app) printRecords(g api.GatewayStatus, names, literal []string, o recordOptions) error {
	key, err := peer.ParsePublicKey(g.PublicKey)
	if err != nil {
		return fmt.Errorf("the gateway's public key: %w", err)
	}
	if len(names) > 0 {
		g.Candidates = slices.DeleteFunc(slices.Clone(g.Candidates), func(c api.Candidate) bool {
			return c.Source == api.SourceAdvertised && !slices.Contains(literal, c.Address) // what a name stands for now
		})
	}
	addrs, notes := announceable(g, o.private)
	zone := dnssd.Zone{Domain: o.domain, Instance: g.Name, Host: o.host, Key: key, TTL: o.ttl}
	for _, name := range names {
		host, port, err := net.SplitHostPort(name)
		n, portErr := strconv.ParseUint(port, 10, 16)
		if err == nil && portErr == nil {
			zone.Ways = append(zone.Ways, dnssd.Way{Target: host, Port: uint16(n)})
		}
	}
	zone.Ways = append(zone.Ways, dnssd.Ways(addrs)...)
	lines, err := zone.Lines()
	if err != nil {
		return usagef("", "%v", err)
	}
	for _, n := range notes {
		fmt.Fprintln(a.stderr, tui.Printable(n))
	}
	if len(zone.Ways) == 0 {
		return failedf("forward a port and set spec.discovery.advertise, or --private for a zone that only a private network sees; `postern netcheck` shows more",
			"dns-records: this gateway has no address that can be dialled from outside")
	}
	for _, l := range lines {
		if _, err := fmt.Fprintln(a.stdout, l); err != nil {
			return err
		}
	}
	a.adviseRecords(zone)
	return nil
}

// adviseRecords prints what to do with the records.
func (a *app) adviseRecords(z dnssd.Zone) {
	say := func(format string, args ...any) { fmt.Fprintf(a.stderr, format+"\n", args...) }
	where, domain := "the zone", "DOMAIN"
	if z.Domain != "" {
		where, domain = "the zone of "+z.Domain, z.Domain
	}
	say("Put these lines into %s, with a new serial number in its SOA record. At the gateways that should find this one, set", where)
	say("spec.discovery.dns.domains: [%s]; there `postern discover` shows %s with the fingerprint %s.", domain, z.Instance, peer.Fingerprint(z.Key))
	if z.Outside() {
		say("%s is not in %s: its addresses go into the zone that it is in.", z.Host, where)
	}
	if !slices.ContainsFunc(z.Ways, func(w dnssd.Way) bool { return w.Target != "" }) {
		say("If this gateway's address changes, change the lines; a host name in spec.discovery.advertise avoids that.")
	}
}

// advertised splits spec.discovery.advertise: host names need no addresses in the zone.
func advertised(values []config.Value) (names, literal []string) {
	for _, v := range values {
		if !strings.HasPrefix(v.Path, "spec.discovery.advertise[") || v.Value == "" {
			continue
		}
		if a, err := netip.ParseAddrPort(v.Value); err == nil {
			literal = append(literal, netip.AddrPortFrom(a.Addr().Unmap(), a.Port()).String())
		} else {
			names = append(names, v.Value)
		}
	}
	return names, literal
}

// announceable returns the candidates that others may find in DNS, best first. The notes say
// which are left out, and why.
func announceable(g api.GatewayStatus, private bool) (out []netip.AddrPort, notes []string) {
	left := map[string][]string{}
	var reasons []string
	leave := func(why, address string) {
		if left[why] == nil {
			reasons = append(reasons, why)
		}
		left[why] = append(left[why], address)
	}
	open := g.NAT.Filtering == "endpoint-independent" && (g.NAT.Mapping == "none" || g.NAT.Mapping == "endpoint-independent")
	for _, c := range g.Candidates {
		a, err := netip.ParseAddrPort(c.Address)
		if err != nil {
			continue
		}
		switch {
		case c.Source == api.SourceRelay || c.Source == api.SourcePeer:
			leave("on a relay, where the address changes with every allocation", c.Address)
		case c.Source == api.SourceSTUN && !open && g.NAT.Mapping != "none":
			leave("the NAT's, which admits only replies, or may; forward the port or set spec.discovery.portMapping", c.Address)
		case !private && onlyInside(a.Addr()):
			leave("private, which nobody outside can dial", c.Address)
		default:
			out = append(out, a)
		}
	}
	for _, why := range reasons {
		notes = append(notes, fmt.Sprintf("left out: %s (%s)", strings.Join(left[why], ", "), why))
	}
	return out, notes
}

// onlyInside reports whether an address is only meaningful in a private network: RFC 1918, RFC
// 4193, and RFC 6598 for carrier-grade NAT.
func onlyInside(a netip.Addr) bool {
	a = a.Unmap()
	return a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() || netip.PrefixFrom(netip.AddrFrom4([4]byte{100, 64}), 10).Contains(a)
}
