package tunnel

import (
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/tunnel/handshake"
	"github.com/postern-dev/postern/tunnel/peer"
	"github.com/postern-dev/postern/tunnel/underlay"
)

const (
	// settling is how long the device may take to accept a response.
	settling = 100 * time.Millisecond
	// crossing is how long a response may take if we do not know when it was requested.
	crossing = 500 * time.Millisecond
	// unverifiedLifetime is longer than the 49 s that may pass between two initiations.
	unverifiedLifetime = 2 * time.Minute
	// stampSlack is by how much a clock must have gone back to be reported. A smaller step is
	// over by the next try 5 s later.
	stampSlack = 2 * time.Second
	// inspectedKept bounds the cache of inspected initiations, 100 bytes each.
	inspectedKept = 2048
)

// Sight is when something arrived, and from where.
type Sight struct {
	From netip.AddrPort
	At   time.Time // zero: never
}

// KeySight is an initiation from the owner of a key.
type KeySight struct {
	Sight
	Key peer.PublicKey
}

// StampSight is an initiation rejected for its timestamp.
type StampSight struct {
	Sight
	// Stamp is the initiation's timestamp, Newest the latest one before it.
	Stamp, Newest time.Time
}

// Sightings are packets to our port that may explain why there is no session with a peer. Each
// Sight is the latest of its kind since the last handshake with the peer. Anyone who can forge the
// source address of a datagram can cause some of them, so they explain but decide nothing.
type Sightings struct {
	// Unverified is a response to our initiations that the device has not accepted: both sides have
	// each other's public key, but the preshared keys differ.
	Unverified Sight
	// NotForUs is an initiation from the peer's address for a public key other than ours. CameBack is
	// one of our own from there: the address leads to us.
	NotForUs, CameBack Sight
	// OtherKey is an initiation to us from the peer's address by the owner of an unknown key.
	OtherKey KeySight
	// StampInPast is an initiation by the peer with an older timestamp than an earlier one.
	// Either its clock was set back, and its initiations look like replays until the clock
	// catches up, or it was a replay.
	StampInPast StampSight
	// Initiated is an initiation by the peer. It is valid, but says nothing about the preshared
	// key. So the peer can reach us, and knows our key.
	Initiated Sight
	// Skew is how far the peer's clock was ahead of ours when the initiation with its newest
	// timestamp arrived, to a second, less the time on the way. 0 if there was none.
	Skew time.Duration
}

// inspection caches the content of initiations that arrived.
type inspection struct {
	inspector *Inspector

	mu   sync.Mutex
	read map[arrival]Initiation
}

// arrival identifies an initiation.
type arrival struct {
	from netip.AddrPort
	at   int64 // nanoseconds since 1970
}

// newest is the greatest timestamp seen from a peer, and when it arrived.
type newest struct{ stamp, at time.Time }

// contentOf reads an initiation, or returns its cached content. An invalid one is not for us.
func (i *inspection) contentOf(seen underlay.InitiationSeen) Initiation {
	key := arrival{seen.From, seen.At.UnixNano()}
	i.mu.Lock()
	in, ok := i.read[key]
	i.mu.Unlock()
	if ok {
		return in
	}
	in, err := i.inspector.Initiation(seen.Data[:])
	if err != nil {
		in.Static = peer.PublicKey{}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.read) >= inspectedKept || i.read == nil {
		i.read = make(map[arrival]Initiation)
	}
	i.read[key] = in
	return in
}

// sighted is an initiation with its content.
type sighted struct {
	Sight
	Initiation
	ours bool // we sent it
}

// inspect reads the initiations from the given hosts, and, if strangers is set, those from
// addresses of no known peer. It stores the peers' timestamps.
func (e *Engine) inspect(all []underlay.InitiationSeen, hosts map[netip.Addr]bool, strangers bool) []sighted {
	var read []sighted
	for _, seen := range all {
		if hosts[seen.From.Addr()] || strangers && seen.Stranger {
			read = append(read, sighted{Sight{seen.From, seen.At}, e.inspection.contentOf(seen), seen.Ours})
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, in := range read {
		if p := e.peers[in.Static]; p != nil && in.Stamp.After(p.newest.stamp) {
			p.newest = newest{in.Stamp, in.At}
		}
	}
	return read
}

// Strangers returns the latest initiation to us by each key that no peer has, from addresses of no
// known peer. It takes about 0.2 ms for each one that was not read before, of which there are at most
// 48. Only the owner of a key can make such a message, but anyone may repeat it.
func (e *Engine) Strangers() (out []KeySight) {
	read := e.inspect(e.bind.Observations().Initiations, nil, true)
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, in := range slices.Backward(read) { // the last one first
		if in.Static.IsZero() || in.Static == e.publicKey || e.peers[in.Static] != nil ||
			slices.ContainsFunc(out, func(s KeySight) bool { return s.Key == in.Static }) {
			continue
		}
		out = append(out, KeySight{in.Sight, in.Static})
	}
	return out
}

// keepStamps stores the timestamps of peers that have completed a handshake since its last call,
// before other initiations replace theirs. Only drive calls it.
func (e *Engine) keepStamps() {
	hosts := make(map[netip.Addr]bool)
	e.mu.Lock()
	for _, p := range e.peers {
		if p.shook && p.machine.Source.IsValid() {
			hosts[p.machine.Source.Remote.Addr()] = true
		}
		p.shook = false
	}
	e.mu.Unlock()
	if len(hosts) > 0 {
		e.inspect(e.bind.Observations().Initiations, hosts, false)
	}
}

// Sightings returns what arrived that may explain why there is no session with the peer. The peer's
// addresses are ips and those of its paths. It costs about 0.2 ms for each initiation from them, or
// from strangers, that was not read before. With many peers it waits for up to half a second; if
// the Engine closes meanwhile, it returns nothing.
func (e *Engine) Sightings(k peer.PublicKey, ips []netip.Addr) Sightings {
	r, err := e.readings.fresh(e.closing) // so as not to miss a handshake that has just completed
	if err != nil {
		if !errors.Is(err, ErrClosed) {
			e.log.Warn("failed to read the tunnel's state", "error", err)
		}
		return Sightings{}
	}
	e.mu.Lock()
	e.observeNew(time.Now(), r)
	p := e.peers[k]
	if p == nil {
		e.mu.Unlock()
		return Sightings{}
	}
	hosts := make(map[netip.Addr]bool)
	for _, ip := range ips {
		hosts[ip.Unmap()] = true
	}
	for _, path := range append(p.addresses(), e.inUseLocked(p)) {
		if path.IsValid() {
			hosts[path.Remote.Addr()] = true
		}
	}
	e.mu.Unlock()

	all := r.seen
	read := e.inspect(all.Initiations, hosts, true)
	s := e.sortInitiations(k, read, hosts)
	s.Unverified = e.unverified(k, all.Responses, read, hosts)
	return s
}

// sortInitiations returns what the initiations say about a peer. They are in order of arrival.
func (e *Engine) sortInitiations(k peer.PublicKey, read []sighted, hosts map[netip.Addr]bool) (s Sightings) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.peers[k]
	if p == nil {
		return s
	}
	if !p.newest.at.IsZero() {
		s.Skew = p.newest.stamp.Sub(p.newest.at.Round(0)).Round(time.Second)
	}
	for _, in := range read {
		switch {
		case in.At.Before(p.machine.ShookAt):
		case in.Static == k:
			if in.At.After(p.newest.at) && in.Stamp.Before(p.newest.stamp.Add(-stampSlack)) {
				s.StampInPast = StampSight{in.Sight, in.Stamp, p.newest.stamp}
			} else {
				s.Initiated = in.Sight
			}
		case !hosts[in.From.Addr()]:
		case in.ours:
			s.CameBack = in.Sight
		case !in.ForUs:
			s.NotForUs = in.Sight
		case !in.Static.IsZero() && in.Static != e.publicKey && e.peers[in.Static] == nil:
			s.OtherKey = KeySight{in.Sight, in.Static}
		}
	}
	// Nobody answers such an initiation, so a forged one from the same source may have replaced it.
	if last := p.stampInPast; s.StampInPast.At.IsZero() && !last.At.Before(p.machine.ShookAt) && time.Since(last.At) < unverifiedLifetime {
		s.StampInPast = last
	}
	p.stampInPast = s.StampInPast
	return s
}

// unverified returns the latest response that the device should have accepted but did not. Once
// reported, it is kept for a while unless a handshake completes, since it may be too early to
// judge later responses.
//
// A managed peer's response is matched by the index of our initiation. Other peers' responses are
// matched by source address and mac1.
func (e *Engine) unverified(k peer.PublicKey, responses []underlay.ResponseSeen, read []sighted, hosts map[netip.Addr]bool) (s Sight) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.peers[k]
	if p == nil {
		return s
	}
	now := time.Now()
	if !p.unverified.At.Before(p.machine.ShookAt) && now.Sub(p.unverified.At) < unverifiedLifetime {
		s = p.unverified
	}
	for _, r := range responses {
		fits := r.Peer == p.id
		if !p.config.Managed {
			fits = hosts[r.From.Addr()] && e.inspection.inspector.Response(r.Data[:])
		}
		// Copies of the accepted response arrive after the handshake.
		late := !p.machine.ShookAt.IsZero() && r.At.Before(p.machine.ShookAt.Add(handshake.SilenceLimit))
		asked := r.Asked
		if asked.IsZero() {
			asked = r.At.Add(-crossing)
		}
		if fits && !late && now.Sub(r.At) >= settling && !crossed(k, asked, r.At, read) {
			s = Sight{r.From, r.At}
		}
	}
	p.unverified = s
	return s
}

// crossed reports whether the peer's own initiation arrived while we waited for a response, and
// made the device discard ours.
func crossed(k peer.PublicKey, asked, at time.Time, read []sighted) bool {
	for _, in := range read {
		if in.Static == k && !in.At.After(at) && !in.At.Before(asked.Add(-settling)) {
			return true
		}
	}
	return false
}
