package discovery

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/discovery/probe"
	"github.com/postern-dev/postern/tunnel/peer"
)

// Errors of [Pathfinder.Probe].
var (
	ErrUnknownPeer = errors.New("no such peer")
	ErrNoPath      = errors.New("no path to the peer is known to work")
	ErrNoAnswer    = errors.New("no answer")
)

// maxPunched bounds how many addresses of a peer's message are read: more than a NAT has for one
// port.
const maxPunched = 16

// HandleSTUN handles a STUN message that arrived at the gateway. It returns false if the message is
// no probe but, for example, a STUN server's answer. An authenticated request is answered on the
// path it came on; invalid ones get no answer. It does not keep packet.
func (f *Pathfinder) HandleSTUN(packet []byte, from peer.Path) bool {
	r, ours := f.prober.Handle(packet, from.Remote)
	if !ours {
		return false
	}
	switch {
	case r.Kind == probe.Request && nobodys(from.Remote.Addr()) == "" && from.IsValid():
		f.handleRequest(r, from)
	case r.Kind == probe.Response:
		f.handleResponse(r, from)
	case r.Kind == probe.Superseded:
		if f.o.OnSuperseded != nil {
			f.o.OnSuperseded(r.Peer, r.BootID)
		}
	case r.Kind == probe.Removed:
		f.handleRemoved(r.Peer, from)
	default:
		f.count(func(c *ProbeCounts) { c.Refused++ })
		if r.Reason != probe.ReasonTwoLives || !f.outlived(r) {
			f.refuse(r, from)
		}
	}
	return true
}

// outlived handles a request of a start that a later one has replaced. If the later one is silent,
// the earlier one counts again, from its next request on.
func (f *Pathfinder) outlived(r probe.Result) bool {
	silent := false
	f.see(r.Peer, func(now time.Time, s *sight) {
		s.booted(now, r.BootID)
		silent = now.Sub(s.requestAt) > endedAfter
	})
	if silent {
		f.prober.SetBootID(r.Peer, r.BootID)
	}
	return silent
}

// handleRemoved notes a peer's word that it has removed us.
func (f *Pathfinder) handleRemoved(k peer.PublicKey, from peer.Path) {
	news := false
	f.see(k, func(now time.Time, s *sight) {
		news = s.removedAt.IsZero()
		s.removedAt, s.removedFrom = now, unmapped(from.Remote)
	})
	if news && f.o.OnRemoved != nil {
		f.o.OnRemoved(k)
	}
}

// refuse tells a gateway that a later one runs with its key, or that it is no longer a peer.
func (f *Pathfinder) refuse(r probe.Result, to peer.Path) {
	if r.Reply == nil || nobodys(to.Remote.Addr()) != "" || !to.IsValid() {
		return
	}
	if err := f.o.Send(r.Reply, to, 0, false); err != nil {
		f.log.Debug("failed to answer a rejected probe", "path", to.String(), "error", err)
	}
}

func (f *Pathfinder) handleRequest(r probe.Result, from peer.Path) {
	f.count(func(c *ProbeCounts) { c.Requests++ })
	if err := f.o.Send(r.Reply, from, 0, false); err != nil {
		f.log.Debug("failed to answer a probe", "path", from.String(), "error", err)
	}
	f.see(r.Peer, func(now time.Time, s *sight) { s.requested(now, from.Remote, r.BootID) })
	f.inputOn(r.Peer, from, func(now time.Time, m *path.Machine) {
		m.Requested(now, from, r.Rebooted)
		if r.Flags&path.FlagDeaf != 0 {
			m.Deserted(now, from)
		}
	})
}

func (f *Pathfinder) handleResponse(r probe.Result, from peer.Path) {
	f.mu.Lock()
	f.counts.Answers++
	if of := f.peers[r.Peer]; of != nil {
		of.sight.removedAt = time.Time{}
	}
	p := f.pings[r.TxID]
	if p != nil && p.over == from && p.key == r.Peer {
		delete(f.pings, r.TxID)
		p.answered <- time.Since(p.sent)
	}
	f.mu.Unlock()
	if p == nil {
		f.inputOn(r.Peer, from, func(now time.Time, m *path.Machine) { m.Answered(now, r.TxID, from, r.Mapped) })
	}
}

func (f *Pathfinder) count(what func(*ProbeCounts)) {
	f.mu.Lock()
	what(&f.counts)
	f.mu.Unlock()
}

// Receive handles a message from a peer's path finder that arrived in-band. Only candidates that
// may be dialled ([Dialable]) are used.
func (f *Pathfinder) Receive(k peer.PublicKey, m path.Message) {
	f.mu.Lock()
	p := f.peers[k]
	if p == nil {
		f.mu.Unlock()
		return
	}
	now := time.Now()
	name := p.name
	m.Candidates, m.Punch = firstOf(m.Candidates, path.MaxCandidates), clonePunch(m.Punch)
	dropped := f.dropUndialableLocked(&m)
	p.m.Receive(now, m)
	p.sight.booted(now, m.Boot)
	f.dueLocked(p, now)
	f.mu.Unlock()
	f.wake.Set()
	if m.Boot != 0 {
		f.prober.SetBootID(k, m.Boot)
	}
	if dropped > 0 {
		f.log.Debug("not dialling announced candidates", "peer", name, "count", dropped)
	}
}

func clonePunch(p *path.Punch) *path.Punch {
	if p == nil {
		return nil
	}
	c := *p
	c.From = firstOf(p.From, maxPunched)
	return &c
}

// firstOf copies at most n elements.
func firstOf[T any](list []T, n int) []T { return slices.Clone(list[:min(len(list), n)]) }

// dropUndialableLocked removes the addresses that must not be sent to from a message, and counts
// them.
func (f *Pathfinder) dropUndialableLocked(m *path.Message) (dropped int) {
	before := len(m.Candidates)
	m.Candidates = slices.DeleteFunc(m.Candidates, func(c Candidate) bool {
		return f.refusedLocked(c.Addr) != ""
	})
	for i, c := range m.Candidates {
		m.Candidates[i].Addr = unmapped(c.Addr)
	}
	dropped = before - len(m.Candidates)
	if m.Punch != nil {
		before = len(m.Punch.From)
		m.Punch.From = slices.DeleteFunc(m.Punch.From, func(a netip.AddrPort) bool {
			return f.refusedLocked(a) != ""
		})
		dropped += before - len(m.Punch.From)
	}
	f.counts.Undialable += uint64(dropped)
	return dropped
}

// ping is a probe with a waiting caller.
type ping struct {
	key      peer.PublicKey
	over     peer.Path
	sent     time.Time
	answered chan time.Duration
}

// Probe sends one probe on the path in use and waits for its answer, until ctx ends. It returns the
// path even without an answer.
func (f *Pathfinder) Probe(ctx context.Context, k peer.PublicKey) (rtt time.Duration, over peer.Path, err error) {
	s, known := f.Snapshot(k)
	if !known {
		return 0, peer.Path{}, ErrUnknownPeer
	}
	over = s.Selected
	if !over.IsValid() {
		return 0, over, fmt.Errorf("%w: %s", ErrNoPath, s.Reason)
	}
	packet, tx, err := f.prober.Request(k, probe.RequestOptions{})
	if err != nil {
		return 0, over, fmt.Errorf("probe: %w", err)
	}
	p := &ping{key: k, over: over, sent: time.Now(), answered: make(chan time.Duration, 1)}
	f.mu.Lock()
	f.pings[tx] = p
	f.counts.Sent++
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.pings, tx)
		f.mu.Unlock()
	}()
	if err := f.o.Send(packet, over, 0, false); err != nil {
		return 0, over, fmt.Errorf("probe over %v: %w", over, err)
	}
	select {
	case rtt = <-p.answered:
		return rtt, over, nil
	case <-ctx.Done():
		return 0, over, unanswered(context.Cause(ctx), time.Since(p.sent), s.Probing)
	}
}

// unanswered says how long it waited for an answer and, if the peer has never answered a probe,
// what that may mean.
func unanswered(cause error, waited time.Duration, probing bool) error {
	switch {
	case !errors.Is(cause, context.DeadlineExceeded):
		return fmt.Errorf("%w: %w", ErrNoAnswer, cause)
	case !probing:
		return fmt.Errorf("%w in %.3g s, and never one to a probe: is it an older version?", ErrNoAnswer, waited.Seconds())
	}
	return fmt.Errorf("%w in %.3g s", ErrNoAnswer, waited.Seconds())
}
