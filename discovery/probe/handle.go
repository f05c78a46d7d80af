package probe

import (
	"net/netip"

	"github.com/postern-dev/postern/discovery/stunwire"
)

// request takes a packet under a key id of a peer.
func (p *Prober) request(packet []byte, from netip.AddrPort, k *keys) Result {
	r := Result{Kind: Drop, Peer: k.peer.Key}
	m, err := stunwire.Parse(packet)
	if err != nil || !from.IsValid() || from.Port() == 0 { // No source to answer to.
		r.Reason = ReasonMalformed
		return r
	}
	r.TxID = m.TxID
	// The MAC is compared in constant time, and before anything else of the message is
	// looked at.
	if err := m.Verify(k.request[:]); err != nil {
		r.Reason = ReasonUnauthenticated
		return r
	}
	a, reason := decodeAttribute(m.Probe)
	switch {
	case reason != "":
	case len(m.Unknown) > 0 || !k.initial && (a.boot != k.boot || a.generation != k.generation):
		reason = ReasonMalformed
	default:
		r.Rebooted, reason = p.take(k, a)
	}
	if reason != "" {
		r.Reason = reason
		if reason == ReasonTwoLives {
			r.BootID, r.Reply = a.boot, p.tellLater(m.TxID, k)
		}
		return r
	}
	r.Reply, err = stunwire.Encode(&stunwire.Message{
		Class: stunwire.Success, TxID: m.TxID, NoFingerprint: true,
		Mapped: netip.AddrPortFrom(from.Addr().Unmap(), from.Port()),
	}, k.reply[:])
	if err != nil { // It has a mapped address, which is all that can be missing.
		r.Reason = ReasonMalformed
		return r
	}
	r.Kind, r.PathID, r.Flags, r.BootID = Request, a.pathID, a.flags, a.boot
	return r
}

// take notes an authenticated request, unless it is a replay.
func (p *Prober) take(k *keys, a attribute) (rebooted bool, reason Reason) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := k.peer
	if p.peers[s.Key] != s || p.byID[k.id] != k {
		return false, ReasonGone
	}
	newest, rebooted, reason := s.in.take(a)
	if reason == ReasonStaleBoot && s.in.lives(a) {
		reason = ReasonTwoLives
	}
	if reason != "" {
		return false, reason
	}
	if rebooted {
		s.out.forgotten()
	}
	if newest {
		p.accept(s, s.in.follow(s.schedule, a.generation))
	}
	return rebooted, ""
}

// accept replaces the keys that a peer's requests may use beside the initial ones. It
// needs the lock.
func (p *Prober) accept(s *peerState, next [3]*keys) {
	if next == s.in.accepted {
		return
	}
	for _, k := range s.in.accepted {
		p.refuse(k)
	}
	for _, k := range next {
		p.admit(s, k)
	}
	s.in.accepted = next
}

// admit lets a key id be used. One that is taken, which 64 bits make a matter of theory,
// stays with who had it. It needs the lock.
func (p *Prober) admit(s *peerState, k *keys) {
	if k == nil {
		return
	}
	if k.peer == nil {
		k.peer = s
	}
	if p.byID[k.id] == nil {
		p.byID[k.id] = k
	}
}

// refuse ends the use of a key id. It needs the lock.
func (p *Prober) refuse(k *keys) {
	if k != nil && p.byID[k.id] == k {
		delete(p.byID, k.id)
	}
}

// response takes a packet of a transaction of ours.
func (p *Prober) response(packet []byte, tx stunwire.TxID, t *transaction) Result {
	r := Result{Kind: Drop, Peer: t.peer.Key, TxID: tx}
	m, err := stunwire.Parse(packet)
	if err != nil {
		r.Reason = ReasonMalformed
		return r
	}
	if err := m.Verify(t.keys.reply[:]); err != nil {
		r.Reason = ReasonUnauthenticated
		return r
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pending[tx] != t {
		r.Reason = ReasonGone
		return r
	}
	delete(p.pending, tx)
	t.peer.out.answered(t.generation)
	r.Kind, r.PathID, r.Flags, r.Mapped = Response, t.pathID, t.flags, m.Mapped
	return r
}

// tellLater answers a request of an earlier life that runs still: that there is a later one.
// It is not larger than the request.
func (p *Prober) tellLater(tx stunwire.TxID, k *keys) []byte {
	p.mu.Lock()
	a := attribute{boot: k.peer.in.boot}
	p.mu.Unlock()
	reply, err := stunwire.Encode(&stunwire.Message{
		Class: stunwire.Error, Code: codeSuperseded, TxID: tx, Probe: a.encode(), NoFingerprint: true,
	}, k.reply[:])
	if err != nil { // It has nothing that could be wrong; and nobody has to be told.
		return nil
	}
	return reply
}

// superseded takes an error response to a transaction of ours.
func (p *Prober) superseded(packet []byte, tx stunwire.TxID, t *transaction) Result {
	r := Result{Kind: Drop, Peer: t.peer.Key, TxID: tx}
	m, err := stunwire.Parse(packet)
	if err != nil {
		r.Reason = ReasonMalformed
		return r
	}
	if err := m.Verify(t.keys.reply[:]); err != nil {
		r.Reason = ReasonUnauthenticated
		return r
	}
	a, reason := decodeAttribute(m.Probe)
	if reason == "" && (m.Code != codeSuperseded || a.boot <= p.bootID) {
		reason = ReasonMalformed
	}
	if reason != "" {
		r.Reason = reason
		return r
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pending[tx] != t {
		r.Reason = ReasonGone
		return r
	}
	delete(p.pending, tx)
	r.Kind, r.PathID, r.Flags, r.BootID = Superseded, t.pathID, t.flags, a.boot
	return r
}
