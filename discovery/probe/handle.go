package probe

import (
	"net/netip"
	"slices"

	"github.com/postern-dev/postern/discovery/stunwire"
)

// request handles a packet with a key id of a peer.
func (p *Prober) request(packet []byte, from netip.AddrPort, k *keys) Result {
	r := Result{Kind: Drop, Peer: k.peer.Key}
	m, err := stunwire.Parse(packet)
	if err != nil || !from.IsValid() || from.Port() == 0 { // no source to answer to
		r.Reason = ReasonMalformed
		return r
	}
	r.TxID = m.TxID
	// The MAC is compared in constant time, before anything else in the message is read.
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
		switch reason {
		case ReasonTwoLives:
			p.mu.Lock()
			later := k.peer.in.boot
			p.mu.Unlock()
			r.BootID, r.Reply = a.boot, refuse(codeSuperseded, later, m.TxID, k)
		case ReasonRemoved:
			r.Reply = refuse(codeRemoved, p.bootID, m.TxID, k)
		}
		return r
	}
	r.Reply, err = stunwire.Encode(&stunwire.Message{
		Class: stunwire.Success, TxID: m.TxID, NoFingerprint: true,
		Mapped: netip.AddrPortFrom(from.Addr().Unmap(), from.Port()),
	}, k.reply[:])
	if err != nil { // it has a mapped address, the only thing that could be missing
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
	removed := slices.Contains(p.former, s)
	if p.peers[s.Key] != s && !removed || p.byID[k.id] != k {
		return false, ReasonGone
	}
	newest, rebooted, reason := s.in.take(a)
	if reason == ReasonStaleBoot && s.in.stillRuns(a) {
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
	if removed {
		return false, ReasonRemoved
	}
	return rebooted, ""
}

// accept replaces the keys that a peer's requests may use besides the initial ones. The lock is
// held.
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

// admit allows a key id. If it is already in use, which is nearly impossible with 64 bits, it
// stays with its owner. The lock is held.
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

// refuse ends the use of a key id. The lock is held.
func (p *Prober) refuse(k *keys) {
	if k != nil && p.byID[k.id] == k {
		delete(p.byID, k.id)
	}
}

// response handles a packet of one of our transactions.
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

// refuse returns an error response to a request from an earlier start that still runs, or from a
// gateway that is no longer a peer. It is not larger than the request.
func refuse(code int, boot uint64, tx stunwire.TxID, k *keys) []byte {
	a := attribute{boot: boot}
	reply, err := stunwire.Encode(&stunwire.Message{
		Class: stunwire.Error, Code: code, TxID: tx, Probe: a.encode(), NoFingerprint: true,
	}, k.reply[:])
	if err != nil { // nothing in it can be wrong, and it need not be sent
		return nil
	}
	return reply
}

// refused handles an error response to one of our transactions.
func (p *Prober) refused(packet []byte, tx stunwire.TxID, t *transaction) Result {
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
	kind := Removed
	a, reason := decodeAttribute(m.Probe)
	switch {
	case reason != "":
	case m.Code == codeSuperseded && a.boot > p.bootID:
		kind = Superseded
	case m.Code != codeRemoved:
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
	r.Kind, r.PathID, r.Flags, r.BootID = kind, t.pathID, t.flags, a.boot
	return r
}
