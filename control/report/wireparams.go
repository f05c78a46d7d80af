package report

import (
	"encoding/json"
	"net/netip"
	"strconv"
	"time"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/tunnel/foreign"
)

type wireParams struct {
	Address       string    `json:"address,omitempty"`
	Remote        string    `json:"remote,omitempty"`
	BesideAddress string    `json:"besideAddress,omitempty"`
	Endpoints     []string  `json:"endpoints,omitempty"`
	Token         bool      `json:"token,omitempty"`
	Failure       string    `json:"failure,omitempty"`
	Beside        string    `json:"beside,omitempty"`
	ServerName    string    `json:"serverName,omitempty"`
	Names         []string  `json:"names,omitempty"`
	Issuer        string    `json:"issuer,omitempty"`
	Authorities   []string  `json:"authorities,omitempty"`
	Status        int       `json:"status,omitempty"`
	Age           seconds   `json:"age,omitempty"`
	Timeout       seconds   `json:"timeout,omitempty"`
	Took          seconds   `json:"took,omitempty"`
	Way           seconds   `json:"way,omitempty"`
	NotBefore     time.Time `json:"notBefore,omitzero"`
	NotAfter      time.Time `json:"notAfter,omitzero"`
	Version       string    `json:"version,omitempty"`
	OwnVersion    string    `json:"ownVersion,omitempty"`
	Limit         int       `json:"limit,omitempty"`
	wireGateway
}

type wireGateway struct {
	From       string          `json:"from,omitempty"`
	Seen       seconds         `json:"seen,omitempty"`
	Candidates []wireCandidate `json:"candidates,omitempty"`
	PeerShut   bool            `json:"peerShut,omitempty"`
	Stamp      time.Time       `json:"stamp,omitzero"`
	Newest     time.Time       `json:"newest,omitzero"`
	Was        []string        `json:"was,omitempty"`
	Now        []string        `json:"now,omitempty"`
	Sent       int             `json:"sent,omitempty"`
	Lost       int             `json:"lost,omitempty"`
	Jitter     seconds         `json:"jitter,omitempty"`
	MTU        int             `json:"mtu,omitempty"`
	LinkMTU    int             `json:"linkMtu,omitempty"`
	Size       int             `json:"size,omitempty"`
	NAT        wireNAT         `json:"nat,omitzero"`
	PeerNAT    wireNAT         `json:"peerNat,omitzero"`
	Relay      string          `json:"relay,omitempty"`
}

type wireCandidate struct {
	Address string `json:"address"`
	Source  string `json:"source,omitempty"`
	State   string `json:"state,omitempty"`
}

func (p *Params) wire() *wireParams {
	if p == nil {
		return nil
	}
	w := wireParams{
		Address: p.Address, Remote: text(p.Remote), BesideAddress: p.BesideAddress, Endpoints: texts(p.Endpoints),
		Token: p.Token, Failure: string(p.Failure), Beside: string(p.Beside),
		ServerName: p.ServerName, Names: p.Names, Issuer: p.Issuer, Authorities: p.Authorities, Status: p.Status,
		Age: toSeconds(p.Age), Timeout: toSeconds(p.Timeout), Took: toSeconds(p.Took), Way: toSeconds(p.Way),
		NotBefore: p.NotBefore, NotAfter: p.NotAfter, Version: p.Version, OwnVersion: p.OwnVersion, Limit: p.Limit,
		wireGateway: p.Gateway.wire(),
	}
	if b, err := json.Marshal(w); err == nil && string(b) == "{}" {
		return nil
	}
	return &w
}

func (g Gateway) wire() wireGateway {
	w := wireGateway{
		From: text(g.From), Seen: toSeconds(g.Seen), PeerShut: g.PeerShut, Stamp: g.Stamp, Newest: g.Newest,
		Was: hostTexts(g.Was), Now: hostTexts(g.Now), Sent: g.Sent, Lost: g.Lost, Jitter: toSeconds(g.Jitter),
		MTU: g.MTU, LinkMTU: g.LinkMTU, Size: g.Size, NAT: wireNAT(g.NAT), PeerNAT: wireNAT(g.PeerNAT),
		Relay: g.Relay,
	}
	for _, c := range g.Candidates {
		w.Candidates = append(w.Candidates, wireCandidate{text(c.Address), c.Source, c.State})
	}
	return w
}

// params reads parameters; what is out of bounds is noted.
func (w *wireParams) params(n *notes) Params {
	return Params{
		Address: place(w.Address), Remote: n.address("remote", w.Remote), BesideAddress: place(w.BesideAddress),
		Endpoints: n.addresses("endpoints", w.Endpoints), Token: w.Token,
		Failure: failure(catalogue.Failure(w.Failure)), Beside: beside(catalogue.Beside(w.Beside)),
		ServerName: foreign.Of(w.ServerName).As(host), Names: n.names("names", w.Names, host),
		Issuer: foreign.Of(w.Issuer).As(authority), Authorities: n.names("authorities", w.Authorities, authority),
		Status: n.status(w.Status), Age: n.within("age", w.Age, maxAge), Timeout: n.within("timeout", w.Timeout, maxWait),
		Took: n.within("took", w.Took, maxWait), Way: n.within("way", w.Way, maxWait),
		NotBefore: n.time("notBefore", w.NotBefore), NotAfter: n.time("notAfter", w.NotAfter),
		Version: version(w.Version), OwnVersion: version(w.OwnVersion), Limit: n.count("limit", w.Limit),
		Gateway: w.gateway(n),
	}
}

func (w *wireGateway) gateway(n *notes) Gateway {
	out := Gateway{
		From: n.address("from", w.From), Seen: n.within("seen", w.Seen, maxAge),
		PeerShut: w.PeerShut, Stamp: n.time("stamp", w.Stamp), Newest: n.time("newest", w.Newest),
		Was: n.hosts("was", w.Was), Now: n.hosts("now", w.Now), Sent: n.count("sent", w.Sent), Lost: n.count("lost", w.Lost),
		Jitter: n.within("jitter", w.Jitter, maxWait), MTU: n.size("mtu", w.MTU), LinkMTU: n.size("linkMtu", w.LinkMTU),
		Size: n.size("size", w.Size), NAT: NAT{known(w.NAT.Mapping), known(w.NAT.Filtering)},
		PeerNAT: NAT{known(w.PeerNAT.Mapping), known(w.PeerNAT.Filtering)}, Relay: place(w.Relay),
	}
	n.most("candidates", len(w.Candidates), maxEndpoints)
	for _, c := range w.Candidates[:min(len(w.Candidates), maxEndpoints)] {
		out.Candidates = append(out.Candidates, Candidate{n.address("candidates", c.Address), source(c.Source), state(c.State)})
	}
	return out
}

// notes read values and keep the first that is out of bounds.
type notes struct{ err error }

func (n *notes) wrong(field, what string) {
	if n.err == nil {
		n.err = malformed(field, what)
	}
}

func (n *notes) most(field string, have, bound int) {
	if have > bound {
		n.wrong(field, "are more than "+strconv.Itoa(bound))
	}
}

// within gives a duration between 0 and the bound.
func (n *notes) within(field string, s seconds, bound time.Duration) time.Duration {
	if f := float64(s); f < 0 || f > bound.Seconds() { // JSON has no NaN
		n.wrong(field, "is no time that can have passed")
		return 0
	}
	return time.Duration(float64(s) * float64(time.Second)).Round(time.Microsecond)
}

func (n *notes) count(field string, v int) int {
	if v != count(v) {
		n.wrong(field, "is out of bounds")
	}
	return count(v)
}

func (n *notes) size(field string, v int) int {
	if v != size(v) {
		n.wrong(field, "is no size of a packet")
	}
	return size(v)
}

func (n *notes) status(v int) int {
	if v != 0 && !isStatus(v) {
		n.wrong("status", "is none of HTTP")
	}
	return v
}

func (n *notes) time(field string, t time.Time) time.Time {
	if !t.IsZero() && !inTime(t) {
		n.wrong(field, "is no time of these days")
	}
	return t.UTC()
}

// address reads an address that may be absent.
func (n *notes) address(field, s string) netip.AddrPort {
	a, ok := address(s)
	if !ok && s != "" {
		n.wrong(field, "is no address")
	}
	return a
}

func (n *notes) addresses(field string, list []string) []netip.AddrPort {
	n.most(field, len(list), maxEndpoints)
	out := addressesOf(list)
	if len(out) != min(len(list), maxEndpoints) {
		n.wrong(field, "hold something that is no address")
	}
	return out
}

func (n *notes) hosts(field string, list []string) []netip.Addr {
	n.most(field, len(list), maxEndpoints)
	out := hosts(list)
	if len(out) != min(len(list), maxEndpoints) {
		n.wrong(field, "hold something that is no address")
	}
	return out
}

func (n *notes) names(field string, list []string, form foreign.Form) []string {
	n.most(field, len(list), maxNames)
	return fitAll(list, form)
}
