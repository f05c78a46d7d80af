package state

import (
	"encoding/json"
	"log/slog"
	"slices"

	"github.com/postern-dev/postern/tunnel/peer"
)

// CodeAside is the code of the warning that an entry of a file was set aside.
const CodeAside = "PST0714"

// Aside is an entry of a state file that cannot be read, or that conflicts with another one. It is
// ignored, so that the others can be used, and stays in the file unchanged. It does not come back
// by itself, not even when the conflicting entry is gone: that may have been removed.
type Aside struct {
	// Name is the entry's name; empty if it has none.
	Name   string `json:"name,omitempty"`
	Reason string `json:"reason"`
	// Announced says that the peer of that name announced it. The peer itself is in use.
	Announced bool `json:"announced,omitempty"`
	// Entry is the original text. It may contain secrets.
	Entry json.RawMessage `json:"entry"`
}

// FileAside is an Aside with the name of its file, and without the entry.
type FileAside struct {
	File, Name, Reason string
	Announced          bool
}

// Aside lists the entries of all files that were set aside.
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

// tellAside logs what was set aside.
func (s *Store) tellAside() {
	for _, a := range s.Aside() {
		s.logger.Warn("set aside an entry of a state file; it is ignored but kept in the file", slog.String("code", CodeAside),
			slog.String("file", a.File), slog.String("entry", a.Name), slog.String("reason", a.Reason))
	}
}

// sieve reads a list entry by entry. Entries that read rejects are appended to aside; read returns
// the entry's name as far as it can.
func sieve(list []json.RawMessage, aside []Aside, read func(json.RawMessage) (name string, err error)) []Aside {
	for _, entry := range list {
		if name, err := read(entry); err != nil {
			aside = append(aside, Aside{Name: name, Reason: err.Error(), Entry: entry})
		}
	}
	return aside
}

// HasAside reports whether an entry of this name was set aside.
func (p Peers) HasAside(name string) bool {
	return slices.ContainsFunc(p.aside, func(a Aside) bool { return a.Name == name })
}

// SetAside sets a peer aside. It reports whether there was one.
func (p *Peers) SetAside(name, reason string) bool {
	x, ok := p.Get(name)
	return ok && p.keepAside(x, reason, false) && p.Remove(name)
}

// SetNextAside sets aside what a peer announced. The peer keeps its current key.
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

// DropAside deletes what was set aside under a name. It reports whether there was anything.
func (p *Peers) DropAside(name string) bool {
	return p.dropAside(func(a Aside) bool { return a.Name == name })
}

// DropAnnounced deletes what the named peer announced and was set aside. It reports whether there
// was anything.
func (p *Peers) DropAnnounced(name string) bool {
	return p.dropAside(func(a Aside) bool { return a.Name == name && a.Announced })
}

func (p *Peers) dropAside(which func(Aside) bool) bool {
	n := len(p.aside)
	p.aside = slices.DeleteFunc(slices.Clone(p.aside), which)
	return len(p.aside) < n
}

// anybody has a key for trying others.
var anybody = peer.PrivateKeyFromBytes([peer.KeySize]byte{1})

// checkKey rejects what cannot be a peer's key.
func checkKey(k peer.PublicKey) error {
	if k.IsZero() {
		return peer.ErrKey
	}
	_, err := anybody.SharedSecret(k)
	return err
}
