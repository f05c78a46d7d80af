package state

import (
	"encoding/json"
	"log/slog"
	"slices"

	"github.com/postern-dev/postern/tunnel/peer"
)

// CodeAside is the code of the warning that an entry of a file stands aside.
const CodeAside = "PST0714"

// Aside is an entry of a state file that cannot be read, or that contradicts another one. It
// counts for nothing, so that the others do, and it stays in the file as it was. It does not
// come back by itself, not even when the other one is gone: that may have been removed.
type Aside struct {
	// Name is what the entry calls itself; empty when it does not say.
	Name   string `json:"name,omitempty"`
	Reason string `json:"reason"`
	// Announced: it is what the peer of that name announced. The peer itself counts.
	Announced bool `json:"announced,omitempty"`
	// Entry is as it was written. It may hold secrets.
	Entry json.RawMessage `json:"entry"`
}

// FileAside is one with the file that it is in, and without what it holds.
type FileAside struct {
	File, Name, Reason string
	Announced          bool
}

// Aside lists the entries of all files that stand aside.
func (s *Store) Aside() []FileAside {
	var out []FileAside
	add := func(file string, list []Aside) {
		for _, a := range list {
			out = append(out, FileAside{file, a.Name, a.Reason, a.Announced})
		}
	}
	add(s.peers.base, s.peers.load().aside)
	add(s.tickets.base, s.tickets.load().aside)
	add(s.observed.base, s.observed.load().Aside)
	return out
}

// tellAside logs what stands aside.
func (s *Store) tellAside() {
	for _, a := range s.Aside() {
		s.logger.Warn("set aside an entry of a state file; it is ignored but kept in the file", slog.String("code", CodeAside),
			slog.String("file", a.File), slog.String("entry", a.Name), slog.String("reason", a.Reason))
	}
}

// sieve reads a list entry by entry. What read refuses is appended to aside; read gives the
// name of the entry, as far as it gets.
func sieve(list []json.RawMessage, aside []Aside, read func(json.RawMessage) (name string, err error)) []Aside {
	for _, entry := range list {
		if name, err := read(entry); err != nil {
			aside = append(aside, Aside{Name: name, Reason: err.Error(), Entry: entry})
		}
	}
	return aside
}

// HasAside reports whether an entry of this name stands aside.
func (p Peers) HasAside(name string) bool {
	return slices.ContainsFunc(p.aside, func(a Aside) bool { return a.Name == name })
}

// SetAside has a peer stand aside. It reports whether there was one.
func (p *Peers) SetAside(name, reason string) bool {
	x, ok := p.Get(name)
	return ok && p.keepAside(x, reason, false) && p.Remove(name)
}

// SetNextAside has what a peer announced stand aside. The peer goes on with the key that it
// has.
func (p *Peers) SetNextAside(name, reason string) bool {
	i, ok := p.index(name)
	if !ok || p.list[i].NextKey.IsZero() || !p.keepAside(p.list[i], reason, true) {
		return false
	}
	p.list[i].NextKey, p.list[i].NextPresharedKey = peer.PublicKey{}, peer.PresharedKey{}
	return true
}

func (p *Peers) keepAside(x Peer, reason string, announced bool) bool {
	entry, err := json.Marshal(encodePeer(x))
	if err == nil {
		p.aside = append(slices.Clone(p.aside), Aside{Name: x.Name, Reason: reason, Announced: announced, Entry: entry})
	}
	return err == nil
}

// DropAside forgets what stands aside by a name. It reports whether there was anything.
func (p *Peers) DropAside(name string) bool {
	return p.dropAside(func(a Aside) bool { return a.Name == name })
}

// DropAnnounced forgets what the peer of a name announced and stands aside. It reports whether there was
// anything.
func (p *Peers) DropAnnounced(name string) bool {
	return p.dropAside(func(a Aside) bool { return a.Name == name && a.Announced })
}

func (p *Peers) dropAside(which func(Aside) bool) bool {
	n := len(p.aside)
	p.aside = slices.DeleteFunc(slices.Clone(p.aside), which)
	return len(p.aside) < n
}

// anybody has a key with which others can be tried.
var anybody = peer.PrivateKeyFromBytes([peer.KeySize]byte{1})

// checkKey refuses what cannot be a peer's key.
func checkKey(k peer.PublicKey) error {
	if k.IsZero() {
		return peer.ErrKey
	}
	_, err := anybody.SharedSecret(k)
	return err
}
