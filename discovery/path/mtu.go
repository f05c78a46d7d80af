package path

import (
	"fmt"
	"net/netip"
	"time"
)

// Path MTU. Probes padded to the sizes below are sent over the selected path with the
// don't-fragment bit; only forward sizes are measured, since answers are short. Each side
// does so for its own direction.
//
// A packet of the tunnel has 16 bytes of header and 16 of tag around it (WireGuard
// whitepaper §5.4.6). The largest that the tunnel sends comes first and is the end of it on
// most paths: at an overlay MTU of 1420, 1452 bytes of UDP payload, which fit 1492 behind
// PPPoE with IPv4, too. Then come common MTUs of IP packets, as far as they are smaller: 9000
// jumbo frames, 8950 VXLAN in those, 8896 and 8500 between clouds' networks, 4092 and 2044
// InfiniBand, 1500 Ethernet, 1492 PPPoE, 1450 VXLAN, 1420 WireGuard, 1400 mobile and cloud,
// 1280 IPv6's least, 1100 tunnels in tunnels, 576 IPv4's least.
const (
	tunnelOverhead = 32
	// usualOverlay is the overlay MTU that fits Ethernet over IPv6. Over a relay nothing
	// larger is looked for: how the relay sends it on nobody knows.
	usualOverlay = 1420
	// The size is searched again each mtuAgain while there is traffic, mtuFailed after a
	// search in which no size crossed.
	mtuAgain  = 10 * time.Minute
	mtuFailed = time.Minute
	// mtuRounds is how often a size is tried before it counts as too large: with 10 %
	// loss each way a size is missed with 0.19⁴ ≈ 10⁻³.
	mtuRounds  = 4
	mtuWaitMin = 300 * time.Millisecond
	mtuWaitMax = time.Second
)

// LargestOverlayMTU is the largest overlay packet, in bytes, that is looked for on a direct
// path of a gateway whose tunnel has an overlay MTU.
func LargestOverlayMTU(overlay int) int { return max(overlay, usualOverlay) }

// UnmeasuredOverlayMTU is the overlay packet, in bytes, that a path is taken to carry until it
// was measured: the overlay's largest, but no more than Ethernet takes over IPv6. WireGuard pads
// what is smaller than its device's MTU to 16 bytes.
func UnmeasuredOverlayMTU(overlay int) int {
	if overlay > usualOverlay {
		return usualOverlay &^ 15
	}
	return overlay
}

// Size is a size that is tried on a path.
type Size struct {
	Payload int // of UDP, in bytes: that of the probe
	// Overlay is the largest packet of the tunnel that surely fits, in bytes: WireGuard pads
	// packets to 16 bytes, up to the MTU of its device.
	Overlay int
}

// Sizes lists what is tried on a direct path to an address, for a gateway whose tunnel has an
// overlay MTU, the largest first.
func Sizes(to netip.Addr, overlay int) []Size {
	largest := LargestOverlayMTU(overlay)
	var out []Size
	for _, payload := range payloads(to, largest) {
		out = append(out, Size{payload, overlayOf(payload, largest)})
	}
	return out
}

// payloads lists the sizes of UDP payload to try for a largest overlay packet, the largest
// first. STUN messages are multiples of four bytes long (RFC 8489 §5): what holds that packet
// is rounded up, what fits an IP packet is rounded down.
func payloads(to netip.Addr, largest int) []int {
	const v4Headers, v6Headers = 20 + 8, 40 + 8
	headers := v6Headers
	if to.Is4() {
		headers = v4Headers
	}
	out := []int{(largest + tunnelOverhead + 3) &^ 3}
	for _, mtu := range []int{9000, 8950, 8896, 8500, 4092, 2044, 1500, 1492, 1450, 1420, 1400, 1280, 1100, 576} {
		if payload := (mtu - headers) &^ 3; payload < out[0] {
			out = append(out, payload)
		}
	}
	return out
}

// overlayOf is the largest packet of the tunnel that a UDP payload holds, where its device's
// MTU is the largest of all.
func overlayOf(payload, largest int) int {
	if o := payload - tunnelOverhead; o < largest {
		return o &^ 15
	}
	return largest
}

// largestFor is the largest overlay packet that is looked for on a pair.
func (m *Machine) largestFor(p *pair) int {
	if p.class == classRelayed {
		return usualOverlay
	}
	return LargestOverlayMTU(m.o.OverlayMTU)
}

// mtu is what is known of the sizes that cross a pair.
type mtu struct {
	payload int       // the largest known to cross; 0 = none is known
	checked time.Time // the end of the last search; zero = one is wanted
	search  *sizeSearch
}

// sizeSearch asks the largest size alone, then in each round all sizes above the best,
// from the top.
type sizeSearch struct {
	sizes   []int
	best    int // index of the largest size that crossed, len(sizes) when none did
	refused int // the smallest size that our own host refuses to send; 0 = none
	round   int
	next    int       // index of the size to ask next
	due     time.Time // when
}

// suspect asks for a new search, since something is not getting through.
func (u *mtu) suspect() { u.checked, u.search = time.Time{}, nil }

// forget is for another network.
func (u *mtu) forget() { *u = mtu{} }

// overlayMTU is the largest packet of the tunnel that crosses the pair whole, in bytes; 0 =
// not known.
func (m *Machine) overlayMTU(p *pair) int {
	if p.mtu.payload == 0 {
		return 0
	}
	return overlayOf(p.mtu.payload, LargestOverlayMTU(m.o.OverlayMTU))
}

// measure sees to it that the size of the selected path is known.
func (m *Machine) measure() {
	p := m.sel
	if p == nil || !p.works() && p.asked > 0 || p.answers < betterAnswers {
		return
	}
	u := &p.mtu
	if u.search != nil {
		m.endRound(p)
		return
	}
	again := u.checked.Add(mtuAgain)
	if u.payload == 0 {
		again = u.checked.Add(mtuFailed)
	}
	if u.checked.IsZero() || !m.idle() && m.at(again) {
		sizes := payloads(p.path.Remote.Addr(), m.largestFor(p))
		u.search = &sizeSearch{sizes: sizes, best: len(sizes), due: m.now}
	}
}

// last is the index after the last size that the round asks.
func (s *sizeSearch) last() int {
	if s.round == 0 {
		return 1
	}
	return s.best
}

// endRound goes to the next round, or ends the search, once the answers are in.
func (m *Machine) endRound(p *pair) {
	s := p.mtu.search
	if s.best == 0 {
		m.sized(p)
		return
	}
	if s.next < s.last() || !m.at(s.due) {
		return
	}
	s.round++
	if s.next = 0; s.round == mtuRounds {
		m.sized(p)
	}
}

// sized ends a search.
func (m *Machine) sized(p *pair) {
	u := &p.mtu
	s := u.search
	was := u.payload
	u.search, u.checked, u.payload = nil, m.now, 0
	if s.best < len(s.sizes) {
		u.payload = s.sizes[s.best]
	}
	if u.payload == was || was == 0 && u.payload == s.sizes[0] {
		return
	}
	if u.payload == 0 {
		m.note(p.label+" MTU unknown", "no padded probe crosses it")
		return
	}
	m.note(fmt.Sprintf("%s MTU %d", p.path, m.overlayMTU(p)),
		fmt.Sprintf("probes of %d bytes cross it, larger ones do not", u.payload))
	if p.barred(m.now) {
		p.barredUntil = m.now // The silence is explained: packets were too large.
	}
	m.talk.stale = true
}

// peerMTU takes the MTU of the peer's direction. One that became smaller than ours has
// ours measured again: the peer's silence may have been our packets' loss, and we do not
// notice while we hear the peer. What a tunnel of the usual MTU sends at most says nothing of
// larger packets.
func (m *Machine) peerMTU(mtu int) {
	changed := mtu != m.talk.mtu
	m.talk.mtu = mtu
	if changed && mtu > 0 && mtu != usualOverlay && m.sel != nil && m.overlayMTU(m.sel) > mtu {
		m.sel.mtu.suspect()
	}
}

// sizeDue gives the pair and the size to ask, when it is time.
func (m *Machine) sizeDue() (*pair, int) {
	p := m.sel
	if p == nil || p.mtu.search == nil {
		return nil, 0
	}
	s := p.mtu.search
	for s.next < s.last() && s.refused > 0 && s.sizes[s.next] >= s.refused {
		s.next++
	}
	if s.next >= s.last() || !m.at(s.due) {
		return nil, 0
	}
	return p, s.sizes[s.next]
}

// sizeSent plans what follows a padded probe: the next size, or the wait for answers.
func (m *Machine) sizeSent(p *pair) {
	s := p.mtu.search
	s.next++
	s.due = m.now
	if s.next >= s.last() {
		s.due = m.now.Add(min(max(3*p.rtt, mtuWaitMin), mtuWaitMax))
	}
}

// crossed takes the answer to a padded probe.
func (m *Machine) crossed(p *pair, size int) {
	s := p.mtu.search
	if s == nil {
		return
	}
	for i, x := range s.sizes {
		if x == size && i < s.best {
			s.best = i
		}
	}
}

// tooLarge takes our own host's refusal to send a padded probe.
func (m *Machine) tooLarge(p *pair, size int) {
	if s := p.mtu.search; s != nil && (s.refused == 0 || size < s.refused) {
		s.refused = size
	}
}
