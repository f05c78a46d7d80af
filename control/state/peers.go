package state

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/tunnel/peer"
)

// Origin says how a peer was added.
type Origin string

// Origins of peers.
const (
	OriginInvited Origin = "invited" // it redeemed a ticket of ours, or we accepted its reply
	OriginJoined  Origin = "joined"  // we redeemed a ticket of its
	OriginAdded   Origin = "added"   // `postern peer add`
	OriginFound   Origin = "found"   // on the local network
)

// Peer is a peer that is not in the configuration file.
type Peer struct {
	// Name is a DNS label, unique here.
	Name string
	// Identity is the name in its user or account at the API server, decided when it was enrolled;
	// empty means Name, also for peers that an older version enrolled.
	Identity     string
	PublicKey    peer.PublicKey
	PresharedKey peer.PresharedKey
	Mode         string
	// Endpoints were configured (host:port), Candidates announced by the peer.
	Endpoints  []string
	Candidates []ticket.Candidate
	// Allow is what the peer may reach here, Offers what it said we may reach there.
	Allow, Offers []string
	// Local maps services of the peer to local listen addresses.
	Local map[string]string
	Stock bool
	// AllowedIPs are the addresses of a stock peer.
	AllowedIPs []netip.Prefix
	// Pending: an operator has yet to confirm the key; until then the peer has no rights.
	Pending bool
	// Awaited: its operator has yet to approve this gateway, as it or its ticket said when this
	// gateway joined; until the first handshake.
	Awaited bool
	Origin  Origin
	// Ticket is the id of the ticket by which it joined, if any.
	Ticket   string
	JoinedAt time.Time
	// ObjectKey is the public key last seen in the peer's object in the cluster; zero before there
	// is one. A peer that has had an object is removed with it.
	ObjectKey peer.PublicKey
	// NextKey is the key that the peer announced, with its preshared key; zero if it announced
	// none. Both keys are accepted until the next one is used.
	NextKey          peer.PublicKey
	NextPresharedKey peer.PresharedKey
	// FormerKeys are its previous keys, newest last.
	FormerKeys []peer.PublicKey
	// RekeyFor is the key of this gateway with which RekeyPSK becomes the preshared key; zero if
	// there is none.
	RekeyFor peer.PublicKey
	RekeyPSK peer.PresharedKey
	// Undo is what is restored unless the last change is confirmed in time.
	Undo Undo
	// Unknown stays with the peer.
	Unknown Unknown
}

// Undo is what a peer's change is rolled back to, and when; the zero value is none. The time also
// has a monotonic reading, so that changing the clock cannot delay it; Within bounds the delay over a
// restart.
type Undo struct {
	At     time.Time         `json:"at"`
	Within time.Duration     `json:"within,omitempty"`
	Allow  []string          `json:"allow,omitempty"`
	Local  map[string]string `json:"local,omitempty"`
}

func (p Peer) clone() Peer {
	p.Endpoints = slices.Clone(p.Endpoints)
	p.Candidates = slices.Clone(p.Candidates)
	p.Allow = slices.Clone(p.Allow)
	p.Offers = slices.Clone(p.Offers)
	p.Local = maps.Clone(p.Local)
	p.AllowedIPs = slices.Clone(p.AllowedIPs)
	p.FormerKeys = slices.Clone(p.FormerKeys)
	p.Undo.Allow, p.Undo.Local = slices.Clone(p.Undo.Allow), maps.Clone(p.Undo.Local)
	return p
}

// Peers is a set of peers, sorted by name. Names and keys are unique in it.
type Peers struct {
	list []Peer
	// aside are the entries of the file that are not in the set. It is immutable.
	aside []Aside
}

// All lists the peers by name.
func (p Peers) All() []Peer { return p.list }

// Len returns the number of peers.
func (p Peers) Len() int { return len(p.list) }

// Get returns the peer with the name.
func (p Peers) Get(name string) (Peer, bool) {
	i, ok := p.index(name)
	if !ok {
		return Peer{}, false
	}
	return p.list[i], true
}

// ByKey returns the peer with the public key.
func (p Peers) ByKey(k peer.PublicKey) (Peer, bool) {
	i := slices.IndexFunc(p.list, func(x Peer) bool { return x.PublicKey == k })
	if i < 0 {
		return Peer{}, false
	}
	return p.list[i], true
}

// holder returns the peer of another name that has, or announced, a key.
func (p Peers) holder(k peer.PublicKey, name string) (Peer, bool) {
	i := slices.IndexFunc(p.list, func(x Peer) bool {
		return !k.IsZero() && x.Name != name && (x.PublicKey == k || x.NextKey == k)
	})
	if i < 0 {
		return Peer{}, false
	}
	return p.list[i], true
}

// maxFormer bounds the stored former keys of a peer: the first, which a list of keys to be added
// automatically may have, and the newest.
const maxFormer = 32

// Succeed switches a peer to the key that it announced, and stores the old one. It reports whether
// it had announced one.
func (p *Peers) Succeed(name string) bool {
	i, ok := p.index(name)
	if !ok || p.list[i].NextKey.IsZero() {
		return false
	}
	x := &p.list[i]
	x.FormerKeys = append(slices.Clone(x.FormerKeys), x.PublicKey)
	if over := len(x.FormerKeys) - maxFormer; over > 0 {
		x.FormerKeys = slices.Delete(x.FormerKeys, 1, 1+over)
	}
	x.PublicKey, x.PresharedKey = x.NextKey, x.NextPresharedKey
	x.NextKey, x.NextPresharedKey = peer.PublicKey{}, peer.PresharedKey{}
	return true
}

// Put adds a peer or replaces the one of the same name. A name that belongs to another key, or a
// key that another peer has or announced, is an [ErrDuplicate]: remove that peer first.
func (p *Peers) Put(v Peer) error {
	if err := api.CheckName(v.Name); err != nil {
		return err
	}
	if v.PublicKey.IsZero() {
		return fmt.Errorf("peer %s: %w", v.Name, peer.ErrKey)
	}
	for _, k := range []peer.PublicKey{v.PublicKey, v.NextKey} {
		if old, ok := p.holder(k, v.Name); ok {
			return fmt.Errorf("%w: key %s is already that of peer %s", ErrDuplicate, k, old.Name)
		}
	}
	i, ok := p.index(v.Name)
	if !ok {
		p.list = slices.Insert(p.list, i, v.clone())
		return nil
	}
	if p.list[i].PublicKey != v.PublicKey {
		return fmt.Errorf("%w: peer %s already has another key (%s); remove it first: postern peer remove %s", ErrDuplicate, v.Name, p.list[i].PublicKey, v.Name)
	}
	if len(v.FormerKeys) == 0 { // whoever adds the peer again does not know them
		v.FormerKeys = p.list[i].FormerKeys
	}
	if v.Unknown == nil {
		v.Unknown = p.list[i].Unknown
	}
	p.list[i] = v.clone()
	return nil
}

// Remove removes a peer and reports whether there was one.
func (p *Peers) Remove(name string) bool {
	i, ok := p.index(name)
	if ok {
		p.list = slices.Delete(p.list, i, i+1)
	}
	return ok
}

func (p Peers) index(name string) (int, bool) {
	return slices.BinarySearchFunc(p.list, name, func(x Peer, n string) int { return strings.Compare(x.Name, n) })
}

func (p Peers) clone() Peers {
	c := Peers{list: make([]Peer, len(p.list)), aside: p.aside}
	for i, x := range p.list {
		c.list[i] = x.clone()
	}
	return c
}

// narrows reports whether next revokes something that old granted.
func narrows(old, next Peers) bool {
	for _, was := range old.list {
		now, ok := next.ByKey(was.PublicKey)
		if !ok || now.Pending && !was.Pending || !now.PresharedKey.Equal(was.PresharedKey) {
			return true
		}
		for _, s := range was.Allow {
			if !slices.Contains(now.Allow, s) {
				return true
			}
		}
	}
	return false
}

// reduce returns old without the peers and grants that next does not have, and without anything new
// in next. A peer that is pending in next is pending.
func reduce(old, next Peers) Peers {
	out := old.clone()
	out.aside = next.aside // they are not in use
	out.list = slices.DeleteFunc(out.list, func(p Peer) bool {
		_, stays := next.ByKey(p.PublicKey)
		return !stays
	})
	for i := range out.list {
		p := &out.list[i]
		now, _ := next.ByKey(p.PublicKey)
		p.Allow = slices.DeleteFunc(p.Allow, func(s string) bool { return !slices.Contains(now.Allow, s) })
		p.Pending = p.Pending || now.Pending
	}
	return out
}

// peerJSON is the file format of a peer. It contains secrets in the clear.
type peerJSON struct {
	Name         string            `json:"name"`
	Identity     string            `json:"identity,omitempty"`
	PublicKey    peer.PublicKey    `json:"publicKey"`
	PresharedKey string            `json:"presharedKey,omitempty"`
	Mode         string            `json:"mode,omitempty"`
	Endpoints    []string          `json:"endpoints,omitempty"`
	Candidates   []Announced       `json:"candidates,omitempty"`
	Allow        []string          `json:"allow,omitempty"`
	Offers       []string          `json:"offers,omitempty"`
	Local        map[string]string `json:"local,omitempty"`
	Stock        bool              `json:"stock,omitempty"`
	AllowedIPs   []netip.Prefix    `json:"allowedIPs,omitempty"`
	Pending      bool              `json:"pending,omitempty"`
	Awaited      bool              `json:"awaited,omitempty"`
	Origin       Origin            `json:"origin,omitempty"`
	Ticket       string            `json:"ticket,omitempty"`
	JoinedAt     time.Time         `json:"joinedAt,omitzero"`
	ObjectKey    *peer.PublicKey   `json:"objectKey,omitempty"`
	NextKey      *peer.PublicKey   `json:"nextKey,omitempty"`
	NextPSK      string            `json:"nextPresharedKey,omitempty"`
	FormerKeys   []peer.PublicKey  `json:"formerKeys,omitempty"`
	RekeyFor     *peer.PublicKey   `json:"rekeyFor,omitempty"`
	RekeyPSK     string            `json:"rekeyPresharedKey,omitempty"`
	Undo         *Undo             `json:"undo,omitempty"`
	unknown      Unknown
}

func (j peerJSON) MarshalJSON() ([]byte, error) {
	type plain peerJSON
	return j.unknown.marshal(plain(j))
}

type peersJSON struct {
	Peers []peerJSON `json:"peers"`
	Aside []Aside    `json:"aside,omitempty"`
}

var peersFormat = format[Peers]{
	name: "peers", major: 1,
	encode: encodePeers, decode: decodePeers, clone: Peers.clone,
	narrows: narrows, reduce: reduce,
}

func encodePeers(p Peers) (any, error) {
	out := peersJSON{Peers: []peerJSON{}, Aside: p.aside}
	for _, x := range p.list {
		out.Peers = append(out.Peers, encodePeer(x))
	}
	return out, nil
}

func encodePeer(x Peer) peerJSON {
	j := peerJSON{
		Name: x.Name, Identity: x.Identity, PublicKey: x.PublicKey, PresharedKey: presharedText(x.PresharedKey), Mode: x.Mode,
		Endpoints: x.Endpoints, Allow: x.Allow, Offers: x.Offers, Local: x.Local, Stock: x.Stock,
		AllowedIPs: x.AllowedIPs, Pending: x.Pending, Awaited: x.Awaited, Origin: x.Origin, Ticket: x.Ticket, JoinedAt: x.JoinedAt.Round(0).UTC(), FormerKeys: x.FormerKeys,
		unknown: x.Unknown,
	}
	for _, c := range x.Candidates {
		j.Candidates = append(j.Candidates, Announced{Address: c.Addr, Source: c.Source})
	}
	if !x.ObjectKey.IsZero() {
		j.ObjectKey = &x.ObjectKey
	}
	if !x.NextKey.IsZero() {
		j.NextKey, j.NextPSK = &x.NextKey, presharedText(x.NextPresharedKey)
	}
	if !x.RekeyFor.IsZero() {
		j.RekeyFor, j.RekeyPSK = &x.RekeyFor, presharedText(x.RekeyPSK)
	}
	if !x.Undo.At.IsZero() {
		undo := x.Undo
		undo.At = undo.At.Round(0).UTC()
		j.Undo = &undo
	}
	return j
}

// decodePeers sets aside entries that conflict with earlier ones. The holder of a key takes
// precedence over one who announced it.
func decodePeers(raw json.RawMessage) (Peers, error) {
	var in struct {
		Peers []json.RawMessage `json:"peers"`
		Aside []Aside           `json:"aside"`
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return Peers{}, err
	}
	var p Peers
	var announcers []Peer
	p.aside = sieve(in.Peers, in.Aside, func(entry json.RawMessage) (string, error) {
		x, err := decodePeer(entry)
		if err != nil {
			return x.Name, err
		}
		if _, ok := p.Get(x.Name); ok {
			return x.Name, fmt.Errorf("%w: name %q", ErrDuplicate, x.Name)
		}
		if !x.NextKey.IsZero() {
			announcers = append(announcers, x)
		}
		present := x
		present.NextKey, present.NextPresharedKey = peer.PublicKey{}, peer.PresharedKey{}
		return x.Name, p.Put(present)
	})
	for _, x := range announcers {
		present, ok := p.Get(x.Name)
		if !ok || present.PublicKey != x.PublicKey {
			continue // it is set aside as a whole
		}
		if err := p.Put(x); err != nil {
			p.keepAside(x, fmt.Sprintf("the key that it announced: %v; the peer counts without", err), true)
		}
	}
	return p, nil
}

func decodePeer(entry json.RawMessage) (Peer, error) {
	var j peerJSON
	if err := json.Unmarshal(entry, &j); err != nil {
		var who struct{ Name string }
		_ = json.Unmarshal(entry, &who) // its name, as far as that can be read
		return Peer{Name: who.Name}, err
	}
	x := Peer{
		Name: j.Name, Identity: j.Identity, PublicKey: j.PublicKey, Mode: j.Mode,
		Endpoints: j.Endpoints, Allow: j.Allow, Offers: j.Offers, Local: j.Local, Stock: j.Stock,
		AllowedIPs: j.AllowedIPs, Pending: j.Pending, Awaited: j.Awaited, Origin: j.Origin, Ticket: j.Ticket, JoinedAt: j.JoinedAt, FormerKeys: j.FormerKeys,
		Unknown: unknownOf(entry, j),
	}
	var err error
	if x.PresharedKey, err = parsePreshared(j.PresharedKey); err != nil {
		return x, fmt.Errorf("preshared key: %w", err)
	}
	for _, c := range j.Candidates {
		x.Candidates = append(x.Candidates, ticket.Candidate{Addr: c.Address, Source: c.Source})
	}
	if j.ObjectKey != nil {
		x.ObjectKey = *j.ObjectKey
	}
	if j.NextKey != nil {
		x.NextKey = *j.NextKey
		if x.NextPresharedKey, err = parsePreshared(j.NextPSK); err != nil {
			return x, fmt.Errorf("next preshared key: %w", err)
		}
	}
	if j.Undo != nil {
		x.Undo = *j.Undo
		x.Undo.At = deadline(x.Undo.At, x.Undo.Within)
	}
	if j.RekeyFor != nil {
		x.RekeyFor = *j.RekeyFor
		if x.RekeyPSK, err = parsePreshared(j.RekeyPSK); err != nil {
			return x, fmt.Errorf("preshared key to come: %w", err)
		}
	}
	return x, nil
}

// presharedText is empty for "none".
func presharedText(k peer.PresharedKey) string {
	if k.IsZero() {
		return ""
	}
	return k.Base64()
}

func parsePreshared(s string) (peer.PresharedKey, error) {
	if s == "" {
		return peer.PresharedKey{}, nil
	}
	return peer.ParsePresharedKey(s)
}
