package catalogue

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tunnel/foreign"
)

// view is the parameters of a code as its templates see them. A fault of a service is read at one
// of three places: outbound, at the gateway that uses the service, about the peer that offers it;
// inbound, at the gateway that offers it, as reported by the peer that uses it; and, without a
// peer, by the gateway about its own service. The methods name both ends for the reader, so most
// texts need one sentence for all of them.
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
	"OwnAddress": (*view).OwnAddress, "SharedHost": (*view).SharedHost, "CandidatePort": (*view).CandidatePort, "Addresses": (*view).Addresses,
	"Scopes": (*view).Scopes, "NodeAddresses": (*view).NodeAddresses, "Placed": (*view).Placed,
	"InNamespace": (*view).InNamespace, "IsIngress": (*view).IsIngress, "HelmType": (*view).HelmType,
	"KubectlObject": (*view).KubectlObject, "RoleKind": (*view).RoleKind, "RoleName": (*view).RoleName,
	"RoleVerbs": (*view).RoleVerbs, "LetOutToServer": (*view).LetOutToServer, "As": (*view).As,
	"ThePeer": (*view).ThePeer, "Owner": (*view).Owner, "Client": (*view).Client, "Reporter": (*view).Reporter,
	"At": (*view).At, "There": (*view).There, "TheGateway": (*view).TheGateway, "Because": (*view).Because,
	"Over": (*view).Over, "Lasted": (*view).Lasted, "Young": (*view).Young, "Brief": (*view).Brief, "UsedRelay": (*view).UsedRelay, "SeenDay": (*view).SeenDay, "NewestDay": (*view).NewestDay,
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
	"Link": (*view).Link, "ServiceNamespace": (*view).ServiceNamespace, "ServiceObject": (*view).ServiceObject, "EntryName": (*view).EntryName, "PublicAddress": (*view).PublicAddress,
	"LeastMTU": (*view).LeastMTU, "LeastLink": (*view).LeastLink, "SkewLimit": (*view).SkewLimit,
	"Release": (*view).Release, "Unanswered": (*view).Unanswered, "WantedBuffer": (*view).WantedBuffer, "MoreMiB": (*view).MoreMiB,
	"NoFiles": (*view).NoFiles, "NoFilesAtAll": (*view).NoFilesAtAll, "NoPorts": (*view).NoPorts,
}

// OfCluster reports whether the service is one of a cluster: its name has a namespace.
func (v *view) OfCluster() bool { return strings.Contains(v.Service, "/") }

// As returns the view for a service, whichever the parameters name, for codes that are always about
// the same service.
func (v *view) As(service string) *view {
	as := *v
	as.Service = service
	return &as
}

// places returns the suffixes of sections for the place where the code is read, best first.
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

// thisGateway names the gateway that shows a sentence.
const thisGateway = "this gateway"

// ThePeer returns the other gateway's name.
func (v *view) ThePeer() string { return or(v.Peer, "the peer") }

// Owner names the gateway that offers the service.
func (v *view) Owner() string {
	if v.Inbound {
		return thisGateway
	}
	return v.ThePeer()
}

// Client names the gateway that uses the service.
func (v *view) Client() string {
	if v.Inbound {
		return v.ThePeer()
	}
	return thisGateway
}

// Reporter names the client if it is not the reader: "did not answer cloud".
func (v *view) Reporter() string {
	if v.Inbound {
		return v.Peer
	}
	return ""
}

// At begins a step where the service is offered: "at cloud," or "here".
func (v *view) At() string {
	if v.Inbound {
		return "here"
	}
	return "at " + v.ThePeer() + ","
}

// There refers back to that place.
func (v *view) There() string {
	if v.Inbound {
		return "here"
	}
	return "there"
}

// TheGateway names the gateway that offers the service, as a machine.
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

// Lasted returns how long something has lasted, "" if unknown.
func (v *view) Lasted() string {
	if v.Age <= 0 {
		return ""
	}
	return Seconds(v.Age)
}

// Young reports whether it is so recent that it may be a restart.
func (v *view) Young() bool { return v.Peer != "" && 0 < v.Age && v.Age < Settled && !v.Over() }

// Brief reports whether a period is short enough for a NAT's timeout.
func (v *view) Brief() bool { return v.Period <= time.Minute }

// Over reports whether the fault is over, and quoted because it comes and goes.
func (v *view) Over() bool {
	return v.Failures > 0 && (v.RootCode == v.Code || v.Code == Intermittent)
}

// SeenDay is when something was last seen, NewestDay when the newest timestamp was made.
func (v *view) SeenDay() string   { return day(v.Seen) }
func (v *view) NewestDay() string { return day(v.Newest) }

// WentBack returns how far a clock went back.
func (v *view) WentBack() string {
	if d := v.Newest.Sub(v.Stamp); !v.Stamp.IsZero() && d > 0 {
		return Seconds(d)
	}
	return ""
}

// Request returns what was requested, and by whom.
func (v *view) Request() string {
	request := or(v.Path, "the request")
	if v.Reporter() != "" {
		request += " of " + v.Reporter()
	}
	return request
}

// Where returns the address that was dialled, and through what.
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

// TheService returns the service that was reached, its owner and its address.
func (v *view) TheService() string { return v.ServiceName() + " of " + v.Owner() + v.Where() }

// ServiceName returns the service's common name. Without a name it is the API server, which most
// codes are about.
func (v *view) ServiceName() string {
	switch v.Service {
	case "", api.ServiceAPIServer:
		return "the API server"
	}
	return v.Service
}

// Setting returns the setting with the service's address: at its owner or, for what is tried
// outside the tunnel, at its client.
func (v *view) Setting(field string) string {
	switch v.Service {
	case "", api.ServiceAPIServer:
		return "spec.services.apiServer." + field
	case api.ServiceAuth:
		return "spec.services.auth"
	}
	return fmt.Sprintf("spec.services.named[name=%s].%s", v.Service, field)
}

// URLSetting returns the client's setting with the service's URL.
func (v *view) URLSetting() string {
	if v.Service == api.ServiceAuth {
		return v.OutOfBand("authURL")
	}
	return v.OutOfBand("apiServerURL")
}

func (v *view) OutOfBand(field string) string {
	return fmt.Sprintf("spec.peers[name=%s].outOfBand.%s", v.ThePeer(), field)
}

// AddressSetting returns the setting with the address that was dialled.
func (v *view) AddressSetting() string {
	if v.Direct {
		return v.URLSetting()
	}
	return v.Setting("address")
}

// EndpointSetting returns the client's setting with the owner's endpoints.
func (v *view) EndpointSetting() string {
	if v.Inbound {
		return "spec.peers[].endpoints at " + v.ThePeer()
	}
	return fmt.Sprintf("spec.peers[name=%s].endpoints here", v.ThePeer())
}

// AddressFound returns the address that was dialled, with the one it resolved to.
func (v *view) AddressFound() string {
	if v.Remote == "" {
		return v.Address
	}
	return fmt.Sprintf("%s (%s)", v.Address, v.Remote)
}

// Unreachable reports whether the code is about a URL outside the tunnel.
func (v *view) Unreachable() bool {
	return v.Code == AuthURLUnreachable || v.Code == APIServerURLUnreachable
}

// Announced reports whether the code is about what a peer announces of its API server.
func (v *view) Announced() bool { return v.Code == TLSUnknownCA || v.Code == TLSWrongName }

// Tunnelled reports whether the service was reached through the tunnel.
func (v *view) Tunnelled() bool { return !v.Direct && v.Upstream == "" }

// userForm matches the users and ServiceAccounts that gateways give to peers. A command to paste
// contains no others.
var userForm = regexp.MustCompile(`^(postern:peer|system:serviceaccount):[0-9a-z:-]{1,150}$`)

// PlainUser returns the client's user at the API server, "" if unknown.
func (v *view) PlainUser() string {
	if !userForm.MatchString(v.User) {
		return ""
	}
	return v.User
}

// ServerSlow reports whether a response was slow apart from the round trip and one lost packet. TCP
// retransmits that after three round trips (RFC 6298 section 2.2), and not before 200 ms.
func ServerSlow(took, way time.Duration) bool {
	return took-way-max(3*way, 200*time.Millisecond) >= SlowAnswer
}

// WaySlow reports whether the path alone may be slow.
func (v *view) WaySlow() bool { return !ServerSlow(v.Took, v.Way) }

// SignedName returns a name in the certificate that is a plain host name, if the right authority
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

// MoreNames returns some of the names after the first.
func (v *view) MoreNames() string {
	if len(v.Names) < 2 {
		return ""
	}
	return strings.Join(v.Names[1:min(len(v.Names), 4)], ", ")
}

// ConfigPlace returns a place in the configuration.
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

// ServiceObject is the name of the Service of a service of a cluster.
func (v *view) ServiceObject() string {
	_, name, _ := strings.Cut(v.Service, "/")
	name, _, _ = strings.Cut(name, ":")
	return pasteable(name, "SERVICE")
}

// EntryName is the name of an entry of a state file.
func (v *view) EntryName() string { return pasteable(v.Field, "NAME") }

// Bounds used in texts.
func (v *view) LeastMTU() int     { return LeastMTU }
func (v *view) LeastLink() int    { return LeastMTU + v.Headers() }
func (v *view) SkewLimit() string { return Seconds(SkewLimit) }
func (v *view) WantedBuffer() int { return WantedBuffer }

// MoreMiB returns one and a half times the limit, in MiB.
func (v *view) MoreMiB() uint64 { return v.Max/(1<<20) + v.Max/(1<<21) + 1 }

// NoFiles, NoFilesAtAll and NoPorts say what is used up: by this process, or on this machine. A resolver
// says more before it.
func (v *view) NoFiles() bool { return strings.HasSuffix(v.Detail, syscall.EMFILE.Error()) }
func (v *view) NoFilesAtAll() bool {
	return strings.HasSuffix(v.Detail, syscall.ENFILE.Error())
}
func (v *view) NoPorts() bool { return strings.HasSuffix(v.Detail, syscall.EADDRNOTAVAIL.Error()) }
