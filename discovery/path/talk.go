package path

import (
	"slices"
	"strings"
	"time"
)

// Until the peer's machine is heard, our own state is sent again after resayFirst, then after twice
// that, at most resayTimes: the first message may be lost with its path, and an older peer
// understands none.
const (
	resayFirst = 2 * time.Second
	resayTimes = 6
)

// talk is the conversation with the peer's machine.
type talk struct {
	seq   uint64
	stale bool // the peer has not been sent the current state
	// through: the tunnel just proved to work without a path.
	through bool
	queue   []Punch
	said    time.Time
	again   int // how often the state was sent without a reply

	heard    bool // the peer's machine has sent something
	peerBoot uint64
	peerSeq  uint64
	nat      NAT // of the peer
	mtu      int // of the peer's direction, as last reported
}

// accept reports whether to handle a message: not if it has another major version or a newer one
// has arrived.
func (t *talk) accept(msg Message) bool {
	major, _, _ := strings.Cut(msg.Version, ".")
	own, _, _ := strings.Cut(MessageVersion, ".")
	// Another boot counts as new, even if its number is smaller: a peer may have lost the number
	// with its state, and nothing can be replayed in-band.
	old := t.heard && msg.Boot == t.peerBoot && msg.Seq <= t.peerSeq
	if major != own || old {
		return false
	}
	if !t.heard || msg.Boot != t.peerBoot {
		t.stale = true // it may not have heard us
	}
	t.heard, t.peerBoot, t.peerSeq, t.nat = true, msg.Boot, msg.Seq, msg.NAT
	return true
}

// say queues a step of punching.
func (t *talk) say(p Punch) { t.queue = append(t.queue, p) }

// take returns the messages to deliver. They need a path, or a tunnel that works without one.
func (t *talk) take(m *Machine) []Message {
	queue, through := t.queue, t.through
	t.queue, t.through = nil, false
	if m.sel == nil && !through {
		return nil
	}
	if !t.heard && t.again < resayTimes && !t.said.IsZero() && m.at(t.said.Add(resayFirst<<t.again)) {
		t.stale = true
		t.again++
	}
	var out []Message
	for _, p := range queue {
		out = append(out, t.message(m, &p))
	}
	if t.stale && len(out) == 0 {
		out = append(out, t.message(m, nil))
	}
	if len(out) > 0 {
		t.stale, t.said = false, m.now
		if !t.heard && t.again < resayTimes {
			m.at(t.said.Add(resayFirst << t.again))
		}
	}
	return out
}

func (t *talk) message(m *Machine, p *Punch) Message {
	t.seq++
	cs := slices.Clone(m.local.Candidates[:min(len(m.local.Candidates), MaxCandidates)])
	if cs == nil {
		cs = []Candidate{}
	}
	return Message{
		Version: MessageVersion, Boot: m.o.Boot, Seq: t.seq,
		Candidates: cs, NAT: m.local.NAT, MTU: m.overlayMTU(m.sel), Punch: p,
	}
}
