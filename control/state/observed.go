package state

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/postern-dev/postern/tunnel/peer"
)

// Observation is what was learned about a peer and can be learned again.
type Observation struct {
	// Endpoints are where authenticated packets last came from, newest first.
	Endpoints []netip.AddrPort `json:"endpoints,omitempty"`
	// At is when the newest one did.
	At time.Time `json:"at,omitzero"`
	// Announced are the candidates that the peer last announced in-band.
	Announced []Announced `json:"announced,omitempty"`
	// Records are names in DNS that had its key.
	Records []string `json:"records,omitempty"`
	// Offers is what the peer said we may reach there.
	Offers []string `json:"offers,omitempty"`
	// ServerName and CAData (PEM) describe its API server.
	ServerName string `json:"serverName,omitempty"`
	CAData     string `json:"caData,omitempty"`
	// Issued are the unexpired identities that we issued to it.
	Issued []Issued `json:"issued,omitempty"`
}

// Announced is a candidate that a peer announced.
type Announced struct {
	Address netip.AddrPort `json:"address"`
	Source  string         `json:"source,omitempty"`
}

// Issued is a certificate that this gateway issued.
type Issued struct {
	// Identity is the identity name it is for; empty if an older version issued it.
	Identity string    `json:"identity,omitempty"`
	Serial   string    `json:"serial"`
	NotAfter time.Time `json:"notAfter"`
}

func (o Observation) clone() Observation {
	o.Endpoints = slices.Clone(o.Endpoints)
	o.Announced = slices.Clone(o.Announced)
	o.Records = slices.Clone(o.Records)
	o.Offers = slices.Clone(o.Offers)
	o.Issued = slices.Clone(o.Issued)
	return o
}

const (
	// maxEndpoints bounds the stored endpoints of a peer.
	maxEndpoints = 4
	// maxAnnounced bounds the stored candidates of a peer.
	maxAnnounced = 24
	// maxIssued bounds the stored identities of a peer under one name to those that end last: a peer
	// that requests as often as it may must not grow the file. What its key has under the name of an
	// earlier peer stays until it expires, or that name could be given away before.
	maxIssued = 64
)

// Observed returns what was learned about the peer with this key.
func (s *Store) Observed(k peer.PublicKey) Observation {
	return s.observation(k).clone()
}

// observation is Observed for callers that do not change the result.
func (s *Store) observation(k peer.PublicKey) Observation {
	var text [44]byte // a key's: looking up one of a thousand creates no garbage
	base64.StdEncoding.Encode(text[:], k[:])
	return s.observed.load().Peers[string(text[:])]
}

// equal reports whether the same was learned.
func (o Observation) equal(other Observation) bool {
	return slices.Equal(o.Endpoints, other.Endpoints) && o.At.Equal(other.At) && slices.Equal(o.Announced, other.Announced) &&
		slices.Equal(o.Records, other.Records) && slices.Equal(o.Offers, other.Offers) &&
		o.ServerName == other.ServerName && o.CAData == other.CAData &&
		slices.EqualFunc(o.Issued, other.Issued, func(a, b Issued) bool {
			return a.Identity == b.Identity && a.Serial == b.Serial && a.NotAfter.Equal(b.NotAfter)
		})
}

// Observe changes what was learned about the peer with this key. If f changes nothing, nothing is
// written: the file holds all peers, and most of what they say is not new. f may be called twice.
func (s *Store) Observe(k peer.PublicKey, f func(*Observation)) error {
	was := s.Observed(k)
	is := was.clone()
	if f(&is); is.equal(was) {
		return nil
	}
	return s.observed.update(func(o *observed) error {
		v := o.Peers[k.String()]
		f(&v)
		o.Peers[k.String()] = v
		return nil
	})
}

// ObserveAll is Observe for many peers, with one write.
func (s *Store) ObserveAll(changes map[peer.PublicKey]func(*Observation)) error {
	return observeAll(s, changes, func(o *Observation, f func(*Observation)) { f(o) })
}

// Proven notes that the peer sent an authenticated packet from the endpoint. It writes only if the
// endpoint is not the newest known.
func (s *Store) Proven(k peer.PublicKey, endpoint netip.AddrPort, now time.Time) error {
	return s.AllProven(map[peer.PublicKey]netip.AddrPort{k: endpoint}, now)
}

// AllProven is Proven for many peers, with one write.
func (s *Store) AllProven(found map[peer.PublicKey]netip.AddrPort, now time.Time) error {
	return observeAll(s, found, func(o *Observation, endpoint netip.AddrPort) {
		if len(o.Endpoints) > 0 && o.Endpoints[0] == endpoint {
			return
		}
		o.Endpoints = slices.DeleteFunc(o.Endpoints, func(e netip.AddrPort) bool { return e == endpoint })
		o.Endpoints = slices.Insert(o.Endpoints, 0, endpoint)
		o.Endpoints = o.Endpoints[:min(len(o.Endpoints), maxEndpoints)]
		o.At = now.Round(0).UTC()
	})
}

// Announce stores the candidates that the peer announced, or the first of many. It writes only if
// they changed.
func (s *Store) Announce(k peer.PublicKey, list []Announced) error {
	return s.AllAnnounced(map[peer.PublicKey][]Announced{k: list})
}

// AllAnnounced is Announce for many peers, with one write.
func (s *Store) AllAnnounced(told map[peer.PublicKey][]Announced) error {
	return observeAll(s, told, func(o *Observation, list []Announced) {
		o.Announced = slices.Clone(list[:min(len(list), maxAnnounced)])
	})
}

// observeAll is Observe for many peers at once.
func observeAll[T any](s *Store, news map[peer.PublicKey]T, f func(*Observation, T)) error {
	old := s.observed.load().Peers
	another := func(k peer.PublicKey, v T) bool {
		was := old[k.String()]
		is := was.clone()
		f(&is, v)
		return !is.equal(was)
	}
	changed := false
	for k, v := range news {
		changed = changed || another(k, v)
	}
	if !changed {
		return nil
	}
	return s.observed.update(func(o *observed) error {
		for k, v := range news {
			is := o.Peers[k.String()]
			f(&is, v)
			o.Peers[k.String()] = is
		}
		return nil
	})
}

// RecordIssued records an identity issued to the peer with this key under an identity name, and
// deletes those that expired before. An identity that is already recorded is not written again. If
// the peer has replaced the key meanwhile, it is recorded for its present one.
func (s *Store) RecordIssued(k peer.PublicKey, name, serial string, now, notAfter time.Time) error {
	has := func(o Observation) bool {
		return slices.ContainsFunc(o.Issued, func(i Issued) bool { return i.Serial == serial })
	}
	if has(s.observation(s.holder(name, k))) {
		return nil
	}
	return s.observed.update(func(all *observed) error {
		k := s.holder(name, k).String()
		o := all.Peers[k]
		if has(o) {
			return nil
		}
		o.Issued = slices.DeleteFunc(o.Issued, func(i Issued) bool { return i.NotAfter.Before(now) })
		o.Issued = append(o.Issued, Issued{Identity: name, Serial: serial, NotAfter: notAfter.Round(0).UTC()})
		slices.SortStableFunc(o.Issued, func(a, b Issued) int { return a.NotAfter.Compare(b.NotAfter) })
		over := -maxIssued
		for _, i := range o.Issued {
			if i.Identity == name {
				over++
			}
		}
		o.Issued = slices.DeleteFunc(o.Issued, func(i Issued) bool {
			if i.Identity == name {
				over--
				return over >= 0
			}
			return false
		})
		all.Peers[k] = o
		return nil
	})
}

// IdentityHolder returns the key, other than k, with valid identities for this name, and when the
// last of them ends; ok is false if there is none. The peer with that key may have been removed.
func (s *Store) IdentityHolder(name string, k peer.PublicKey, now time.Time) (holder peer.PublicKey, until time.Time, ok bool) {
	for text, o := range s.observed.load().Peers {
		if text == k.String() {
			continue
		}
		for _, i := range o.Issued {
			if i.Identity == name && i.NotAfter.After(now) && i.NotAfter.After(until) {
				until, ok = i.NotAfter, holder.UnmarshalText([]byte(text)) == nil
			}
		}
	}
	return holder, until, ok
}

// LastIssued returns the number of identities of the peer with this key that are valid at the given
// time, and when the last of them ends.
func (s *Store) LastIssued(k peer.PublicKey, now time.Time) (count int, notAfter time.Time) {
	for _, i := range s.observed.load().Peers[k.String()].Issued {
		if !now.Before(i.NotAfter) {
			continue
		}
		count++
		if i.NotAfter.After(notAfter) {
			notAfter = i.NotAfter
		}
	}
	return count, notAfter
}

// ListenerPort returns the port that the local listener for a service of the named peer had, or 0.
func (s *Store) ListenerPort(name, service string) uint16 {
	return s.observed.load().Ports[name][service]
}

// Listener identifies a local listener by what it leads to: a service of the named peer.
type Listener struct{ Peer, Service string }

// SetListenerPorts stores the ports of listeners, so that kubeconfigs stay valid across restarts.
// It takes one write for all, since the file holds all peers' ports.
func (s *Store) SetListenerPorts(ports map[Listener]uint16) error {
	if len(ports) == 0 {
		return nil
	}
	return s.observed.update(func(o *observed) error {
		for l, port := range ports {
			if o.Ports[l.Peer] == nil {
				o.Ports[l.Peer] = make(map[string]uint16)
			}
			o.Ports[l.Peer][l.Service] = port
		}
		return nil
	})
}

// Identity returns the certificate and key (PEM) that the peer with this key issued to us.
func (s *Store) Identity(k peer.PublicKey) (certPEM, keyPEM []byte, ok bool) {
	v, ok := s.identities.load().Identities[k.String()]
	return []byte(v.Certificate), []byte(v.Key), ok
}

// SetIdentity stores it.
func (s *Store) SetIdentity(k peer.PublicKey, certPEM, keyPEM []byte) error {
	return s.identities.update(func(i *identities) error {
		i.Identities[k.String()] = identity{Certificate: string(certPEM), Key: string(keyPEM)}
		return nil
	})
}

// Forget deletes what was learned about a removed peer: endpoints, ports, identities. The record of
// what was issued to it stays until that expires: an operator is told, and nobody else gets its
// name.
func (s *Store) Forget(name string, k peer.PublicKey) error {
	s.endSuccession(k)
	err := s.identities.update(func(i *identities) error {
		delete(i.Identities, k.String())
		return nil
	})
	if err != nil {
		return fmt.Errorf("forget peer %s: %w", name, err)
	}
	err = s.observed.update(func(o *observed) error {
		delete(o.Ports, name)
		if issued := slices.Clone(o.Peers[k.String()].Issued); len(issued) > 0 {
			for i := range issued { // an older version named identities after the peer
				issued[i].Identity = cmp.Or(issued[i].Identity, name)
			}
			o.Peers[k.String()] = Observation{Issued: issued}
		} else {
			delete(o.Peers, k.String())
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("forget peer %s: %w", name, err)
	}
	return nil
}

// observed is by public key; ports are by peer name and service.
type observed struct {
	Peers map[string]Observation       `json:"peers"`
	Ports map[string]map[string]uint16 `json:"ports"`
	// Removed are the keys of peers that an operator removed, newest last.
	Removed []string `json:"removed,omitempty"`
	// Retired are the gateway's own former public keys, newest last.
	Retired []string `json:"retired,omitempty"`
	// Configured are the keys of the configuration's peers, by name.
	Configured map[string]string `json:"configured,omitempty"`
	// Aside are the unreadable entries of Peers. It is immutable.
	Aside []Aside `json:"aside,omitempty"`
}

func (o observed) clone() observed {
	c := observed{
		Peers: make(map[string]Observation, len(o.Peers)), Ports: make(map[string]map[string]uint16, len(o.Ports)),
		Removed: slices.Clone(o.Removed), Retired: slices.Clone(o.Retired), Configured: maps.Clone(o.Configured), Aside: o.Aside,
	}
	for k, v := range o.Peers {
		c.Peers[k] = v.clone()
	}
	for k, v := range o.Ports {
		c.Ports[k] = maps.Clone(v)
	}
	return c
}

// decodeObserved sets unreadable observations aside.
func decodeObserved(raw json.RawMessage) (observed, error) {
	type plain observed
	in := struct {
		plain
		Peers map[string]json.RawMessage `json:"peers"`
	}{}
	if err := json.Unmarshal(raw, &in); err != nil {
		return observed{}, err
	}
	o := observed(in.plain)
	o.Peers = make(map[string]Observation, len(in.Peers))
	for _, key := range slices.Sorted(maps.Keys(in.Peers)) {
		o.Aside = sieve([]json.RawMessage{in.Peers[key]}, o.Aside, func(entry json.RawMessage) (string, error) {
			var v Observation
			err := json.Unmarshal(entry, &v)
			if err == nil {
				o.Peers[key] = v
			}
			return key, err
		})
	}
	return o, nil
}

type identity struct {
	Certificate string `json:"certificate"`
	Key         string `json:"key"`
}

type identities struct {
	Identities map[string]identity `json:"identities"`
}

func (i identities) clone() identities {
	c := identities{Identities: make(map[string]identity, len(i.Identities))}
	maps.Copy(c.Identities, i.Identities)
	return c
}

var observedFormat = format[observed]{
	name: "observed", major: 1,
	encode: func(o observed) (any, error) { return o.clone(), nil },
	decode: decodeObserved, clone: observed.clone, lazy: true,
	loss: "last endpoints and listener ports; peers that dial us or have endpoints come back by themselves, as do those that were removed and that spec.discovery.lan still makes peers",
}

var identitiesFormat = format[identities]{
	name: "identities", major: 1,
	encode: func(i identities) (any, error) { return i.clone(), nil },
	decode: decodeJSON[identities], clone: identities.clone,
	loss: "identities issued to us; new ones are asked for",
}

func decodeJSON[T any](raw json.RawMessage) (T, error) {
	var v T
	err := json.Unmarshal(raw, &v)
	return v, err
}
