package catalogue

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/discovery/special"
	"github.com/postern-dev/postern/tunnel/foreign"
)

// view is the parameters of a code as its templates see them. A fault of a service is read
// at one of three places: outbound, at the gateway that uses the service, of the peer that
// offers it; inbound, at the gateway that offers it, as the peer that uses it reports; and,
// with no peer at all, by the gateway itself of what it offers. The methods name the two
// ends for the reader, so that most texts are one sentence for all of them.
type view struct {
	Params
	Code Code
}

func viewOf(c Code, p Params) *view {
	v := &view{p, Code(foreign.Of(string(c)).String())}
	v.clean()
	return v
}

// methods are those that templates may call.
var methods = map[string]any{
	"Accounts": (*view).Accounts, "Tried": (*view).Tried, "Dialled": (*view).Dialled, "Target": (*view).Target,
	"OwnAddress": (*view).OwnAddress, "CandidatePort": (*view).CandidatePort, "Addresses": (*view).Addresses,
	"Scopes": (*view).Scopes, "NodeAddresses": (*view).NodeAddresses, "Placed": (*view).Placed,
	"InNamespace": (*view).InNamespace, "IsIngress": (*view).IsIngress, "HelmType": (*view).HelmType,
	"KubectlObject": (*view).KubectlObject, "RoleKind": (*view).RoleKind, "RoleName": (*view).RoleName,
	"RoleVerbs": (*view).RoleVerbs, "LetOutToServer": (*view).LetOutToServer, "As": (*view).As,
	"ThePeer": (*view).ThePeer, "Owner": (*view).Owner, "Client": (*view).Client, "Reporter": (*view).Reporter,
	"At": (*view).At, "There": (*view).There, "TheGateway": (*view).TheGateway, "Because": (*view).Because,
	"Lasted": (*view).Lasted, "Young": (*view).Young, "UsedRelay": (*view).UsedRelay, "SeenDay": (*view).SeenDay, "NewestDay": (*view).NewestDay,
	"WentBack": (*view).WentBack, "Request": (*view).Request, "Where": (*view).Where,
	"TheService": (*view).TheService, "ServiceName": (*view).ServiceName, "Setting": (*view).Setting,
	"URLSetting": (*view).URLSetting, "OutOfBand": (*view).OutOfBand, "AddressSetting": (*view).AddressSetting,
	"EndpointSetting": (*view).EndpointSetting, "AddressFound": (*view).AddressFound,
	"Unreachable": (*view).Unreachable, "Announced": (*view).Announced, "Tunnelled": (*view).Tunnelled,
	"PlainUser": (*view).PlainUser, "WaySlow": (*view).WaySlow, "RoutedTo": (*view).RoutedTo,
	"SignedName": (*view).SignedName, "FirstName": (*view).FirstName, "HostName": (*view).HostName,
	"ByItself": (*view).ByItself, "OfCluster": (*view).OfCluster,
	"MoreNames": (*view).MoreNames, "ConfigPlace": (*view).ConfigPlace, "LostPercent": (*view).LostPercent,
	"LossHost": (*view).LossHost, "LossPort": (*view).LossPort, "OwnPort": (*view).OwnPort,
	"BehindNAT": (*view).BehindNAT, "Rejected": (*view).Rejected, "Headers": (*view).Headers, "OwnHost": (*view).OwnHost, "TooLarge": (*view).TooLarge, "Family": (*view).Family, "Outside": (*view).Outside,
	"Link": (*view).Link, "ServiceNamespace": (*view).ServiceNamespace, "EntryName": (*view).EntryName, "PublicAddress": (*view).PublicAddress,
	"LeastMTU": (*view).LeastMTU, "LeastLink": (*view).LeastLink, "SkewLimit": (*view).SkewLimit,
	"WantedBuffer": (*view).WantedBuffer, "MoreMiB": (*view).MoreMiB,
}

// OfCluster reports whether the service is one of a cluster: it has a namespace in its name.
func (v *view) OfCluster() bool { return strings.Contains(v.Service, "/") }

// As is for the codes of one service, whichever the parameters name.
func (v *view) As(service string) *view {
	as := *v
	as.Service = service
	return &as
}

// places are the suffixes of sections for where the code is read, best first.
func (v *view) places() []string {
	var out []string
	if v.Direct {
		out = append(out, " direct")
	}
	if v.Inbound && v.Peer == "" {
		out = append(out, " own")
	}
	if v.Inbound {
		return append(out, " inbound", "")
	}
	return append(out, " outbound", "")
}

// thisGateway is how sentences call the gateway that shows them.
const thisGateway = "this gateway"

// ThePeer is the other gateway's name.
func (v *view) ThePeer() string { return or(v.Peer, "the peer") }

// Owner is who offers the service.
func (v *view) Owner() string {
	if v.Inbound {
		return thisGateway
	}
	return v.ThePeer()
}

// Client is who uses the service.
func (v *view) Client() string {
	if v.Inbound {
		return v.ThePeer()
	}
	return thisGateway
}

// Reporter is the client where the reader is not the client itself: "did not answer cloud".
func (v *view) Reporter() string {
	if v.Inbound {
		return v.Peer
	}
	return ""
}

// At begins what is to be done where the service is offered: "at cloud" or "here".
func (v *view) At() string {
	if v.Inbound {
		return "here"
	}
	return "at " + v.ThePeer()
}

// There points back to that place.
func (v *view) There() string {
	if v.Inbound {
		return "here"
	}
	return "there"
}

// TheGateway is the gateway that offers the service.
func (v *view) TheGateway() string {
	if v.Inbound {
		return thisGateway
	}
	return "the gateway of " + v.ThePeer()
}

// Because appends an error's text to a sentence.
func (v *view) Because() string {
	if v.Detail == "" {
		return ""
	}
	return ": " + v.Detail
}

// Lasted is how long something has lasted, empty if that is not known.
func (v *view) Lasted() string {
	if v.Age <= 0 {
		return ""
	}
	return Seconds(v.Age)
}

// Young reports whether it has lasted so short that it may be a restart.
func (v *view) Young() bool { return v.Peer != "" && 0 < v.Age && v.Age < Settled }

// SeenDay is when something was last seen, NewestDay when the newest stamp was made.
func (v *view) SeenDay() string   { return day(v.Seen) }
func (v *view) NewestDay() string { return day(v.Newest) }

// WentBack is how far a clock went back.
func (v *view) WentBack() string {
	if d := v.Newest.Sub(v.Stamp); !v.Stamp.IsZero() && d > 0 {
		return Seconds(d)
	}
	return ""
}

// Request is what was asked for, and by whom.
func (v *view) Request() string {
	request := or(v.Path, "the request")
	if v.Reporter() != "" {
		request += " of " + v.Reporter()
	}
	return request
}

// Where is the address that was dialled, and through what.
func (v *view) Where() string {
	switch {
	case v.Upstream != "":
		return " at " + v.Upstream
	case v.Address == "":
		return ""
	case v.Direct:
		return " at " + v.Address + " outside the tunnel"
	}
	return " at " + v.Address + " inside the tunnel"
}

// TheService is the service that was talked to, its owner and its address.
func (v *view) TheService() string { return v.ServiceName() + " of " + v.Owner() + v.Where() }

// ServiceName is what people call the service; without a name it is the API server, the
// only one that most codes are about.
func (v *view) ServiceName() string {
	switch v.Service {
	case "", api.ServiceAPIServer:
		return "the API server"
	}
	return v.Service
}

// Setting is where the configuration says how the service is reached: that of the one who
// offers it or, for what is tried outside the tunnel, that of the one who uses it.
func (v *view) Setting(field string) string {
	switch v.Service {
	case "", api.ServiceAPIServer:
		return "spec.services.apiServer." + field
	case api.ServiceAuth:
		return "spec.services.auth"
	}
	return fmt.Sprintf("spec.services.named[name=%s].%s", v.Service, field)
}

// URLSetting is where the client's configuration has the URL of the service.
func (v *view) URLSetting() string {
	if v.Service == api.ServiceAuth {
		return v.OutOfBand("authURL")
	}
	return v.OutOfBand("apiServerURL")
}

func (v *view) OutOfBand(field string) string {
	return fmt.Sprintf("spec.peers[name=%s].outOfBand.%s", v.ThePeer(), field)
}

// AddressSetting is the setting with the address that was dialled.
func (v *view) AddressSetting() string {
	if v.Direct {
		return v.URLSetting()
	}
	return v.Setting("address")
}

// EndpointSetting is where the dialler's configuration has the owner's endpoints.
func (v *view) EndpointSetting() string {
	if v.Inbound {
		return "spec.peers[].endpoints at " + v.ThePeer()
	}
	return fmt.Sprintf("spec.peers[name=%s].endpoints here", v.ThePeer())
}

// AddressFound is the address that was dialled, with what its name stands for.
func (v *view) AddressFound() string {
	if v.Remote == "" {
		return v.Address
	}
	return fmt.Sprintf("%s (%s)", v.Address, v.Remote)
}

// Unreachable: the code is that of a URL outside the tunnel.
func (v *view) Unreachable() bool {
	return v.Code == AuthURLUnreachable || v.Code == APIServerURLUnreachable
}

// Announced: the code is about what a peer announces of its API server.
func (v *view) Announced() bool { return v.Code == TLSUnknownCA || v.Code == TLSWrongName }

// Tunnelled: the service was reached by the tunnel.
func (v *view) Tunnelled() bool { return !v.Direct && v.Upstream == "" }

// userForm is that of users and of ServiceAccounts that gateways give to peers. What is shown
// in a command to paste has no other.
var userForm = regexp.MustCompile(`^(postern:peer|system:serviceaccount):[0-9a-z:-]{1,150}$`)

// PlainUser is the client's user at the API server, empty if that is not known.
func (v *view) PlainUser() string {
	if !userForm.MatchString(v.User) {
		return ""
	}
	return v.User
}

// ServerSlow reports whether an answer was slow without what the way there and back took, and what
// a packet does that is lost on it: TCP sends that again after three round trips (RFC 6298 section
// 2.2), and no sooner than after 200 ms.
func ServerSlow(took, way time.Duration) bool {
	return took-way-max(3*way, 200*time.Millisecond) >= SlowAnswer
}

// WaySlow reports whether the way may be all that is slow.
func (v *view) WaySlow() bool { return !ServerSlow(v.Took, v.Way) }

// RoutedTo is the upstream's IP address, if it is known.
func (v *view) RoutedTo() string {
	a, err := netip.ParseAddrPort(or(v.Remote, v.Upstream))
	if err != nil {
		return ""
	}
	return a.Addr().Unmap().String()
}

// SignedName is a name of the certificate that is nothing but one, if the right authority
// signed it.
func (v *view) SignedName() string {
	if !v.Signed {
		return ""
	}
	if slices.Contains(v.Names, DefaultServerName) {
		return DefaultServerName
	}
	if i := slices.IndexFunc(v.Names, plainHost); i >= 0 {
		return v.Names[i]
	}
	return ""
}

// plainHost reports whether a name is a host name or IP address of letters, digits, dots,
// colons and hyphens, beginning with a letter or digit.
func plainHost(s string) bool {
	const digits, letters = "0123456789", "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	return s != "" && len(s) <= 253 && strings.Contains(digits+letters, s[:1]) && strings.Trim(s, digits+letters+".:-") == ""
}

func (v *view) FirstName() string { return first(v.Names) }

// HostName is the first name without its port, or a placeholder. Endpoint names come from
// our own configuration or from a peer: only a plain one is offered to be pasted.
func (v *view) HostName() string {
	host := strings.TrimSuffix(v.FirstName(), ":"+portOf(v.FirstName()))
	return pasteable(host, "NAME")
}

// ByItself reports whether the host refuses that the address is of.
func (v *view) ByItself() bool {
	a, ok := special.Host(v.Address)
	by, is := special.Host(v.By)
	return ok && is && a == by
}

// MoreNames are some of the names but the first.
func (v *view) MoreNames() string {
	if len(v.Names) < 2 {
		return ""
	}
	return strings.Join(v.Names[1:min(len(v.Names), 4)], ", ")
}

// ConfigPlace is a place in the configuration.
func (v *view) ConfigPlace() string {
	place := v.File
	if v.Line > 0 {
		place = fmt.Sprintf("%s line %d", place, v.Line)
	}
	if v.Field != "" {
		place = fmt.Sprintf("%s, %s", place, v.Field)
	}
	return place
}

func (v *view) LostPercent() string {
	share := v.Loss
	if v.Sent > 0 {
		share = float64(v.Lost) / float64(v.Sent)
	}
	return fmt.Sprintf("%.1f", 100*share)
}

// OwnHost is this gateway's address of the family in use, as others see it.
func (v *view) OwnHost() string {
	if a, ok := special.Host(v.OwnAddress(v.Address)); ok {
		return a.String()
	}
	return "ADDRESS"
}

// Family is 4 or 6, that of the address in use, and 0 if that is not known.
func (v *view) Family() int {
	switch a, ok := special.Host(v.Address); {
	case !ok:
		return 0
	case a.Is6():
		return 6
	}
	return 4
}

// TooLarge is how nftables calls the ICMP error of the family in use that says that a packet is too large.
func (v *view) TooLarge() string {
	if v.Family() == 6 {
		return "icmpv6 type packet-too-big"
	}
	return "icmp type destination-unreachable"
}

// LossHost and LossPort are where a hop that loses packets is looked for.
func (v *view) LossHost() string {
	if a, ok := special.Host(v.lossAddress()); ok {
		return a.String()
	}
	return "ADDRESS"
}

func (v *view) LossPort() string { return or(portOf(v.lossAddress()), v.OwnPort()) }

// lossAddress is the address that was dialled or, if the check has none, one that is tried; empty
// without any. What a peer reports was tried is an address of this gateway.
func (v *view) lossAddress() string {
	tried := []string{v.Address}
	if v.Reporter() == "" {
		tried = append(tried, v.Target())
		for _, c := range v.Candidates {
			if !c.Relayed() {
				tried = append(tried, c.Address)
			}
		}
	}
	i := slices.IndexFunc(tried, func(a string) bool { _, ok := special.Host(a); return ok })
	if i < 0 {
		return ""
	}
	return tried[i]
}

// pasteable is a name to be pasted, or a placeholder.
func pasteable(name, placeholder string) string {
	if !plainHost(name) {
		return placeholder
	}
	return name
}

// Link is the machine's only link.
func (v *view) Link() string {
	if len(v.Names) != 1 {
		return "DEVICE"
	}
	return pasteable(v.Names[0], "DEVICE")
}

// ServiceNamespace is the namespace of a service of a cluster.
func (v *view) ServiceNamespace() string {
	namespace, _, _ := strings.Cut(v.Service, "/")
	return pasteable(namespace, "NAME")
}

// EntryName is the name of an entry of a state file.
func (v *view) EntryName() string { return pasteable(v.Field, "NAME") }

// PublicAddress is this gateway's host as others see it, with a port.
func (v *view) PublicAddress(port string) string {
	host := "PUBLIC-IP"
	if a, ok := special.Host(first(v.Own)); ok {
		host = a.String()
	}
	return net.JoinHostPort(host, port)
}

// OwnPort is the port that this gateway listens on.
func (v *view) OwnPort() string {
	if v.Port == 0 {
		return "51820"
	}
	return strconv.Itoa(int(v.Port))
}

// The bounds that texts name.
func (v *view) LeastMTU() int     { return LeastMTU }
func (v *view) LeastLink() int    { return LeastMTU + v.Headers() }
func (v *view) SkewLimit() string { return Seconds(SkewLimit) }
func (v *view) WantedBuffer() int { return WantedBuffer }

// Headers are the bytes that the tunnel adds to a packet: of WireGuard, UDP, and IPv6 or what IP the address
// in use is of.
func (v *view) Headers() int {
	const wireGuard, udp, ipv4, ipv6 = 32, 8, 20, 40
	if a, ok := special.Host(v.Address); ok && a.Is4() {
		return wireGuard + udp + ipv4
	}
	return wireGuard + udp + ipv6
}

// Outside is the size outside the tunnel of a packet inside, 0 if that is not known.
func (v *view) Outside(inside int) int {
	if inside == 0 {
		return 0
	}
	return inside + v.Headers()
}

// Rejected reports whether what is sent to the peer is not only lost.
func (v *view) Rejected() bool {
	return slices.ContainsFunc(v.Candidates, func(c Candidate) bool { return c.Reason == "port unreachable" })
}

// BehindNAT reports whether a NAT is known to be there.
func (v *view) BehindNAT(n NAT) bool {
	return n.Mapping != "" && n.Mapping != "unknown" && n.Mapping != "none"
}

// MoreMiB is half as much again as the limit, in MiB.
func (v *view) MoreMiB() uint64 { return v.Max/(1<<20) + v.Max/(1<<21) + 1 }
