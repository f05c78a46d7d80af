package path

import (
	"fmt"
	"net/netip"
	"time"
)

// Path MTU. Probes padded to the sizes below are sent on the selected path with the don't-fragment
// bit. They measure only the forward direction, since answers are short; each side measures its own
// direction.
//
// A tunnel packet has a 16-byte header and a 16-byte tag around it (WireGuard whitepaper §5.4.6).
// The largest one that the tunnel sends is tried first and settles it on most paths: at an overlay
// MTU of 1420 it has 1452 bytes of UDP payload, which also fits 1492 behind PPPoE with IPv4. Then
// come smaller common MTUs: 9000 jumbo frames, 8950 VXLAN inside those, 8896 and 8500 between
// clouds' networks, 4092 and 2044 InfiniBand, 1500 Ethernet, 1492 PPPoE, 1450 VXLAN, 1420
// WireGuard, 1400 mobile and cloud, 1280 IPv6's minimum, 1100 nested tunnels, 576 IPv4's minimum.
const (
	tunnelOverhead = 32
	// usualOverlay is the overlay MTU that fits Ethernet over IPv6. On a relay nothing larger is
	// tried, since nobody knows how the relay forwards it.
	usualOverlay = 1420
	// The search is repeated every mtuAgain while there is traffic, or every mtuFailed after a
	// search in which no size passed.
	mtuAgain  = 10 * time.Minute
	mtuFailed = time.Minute
	// mtuRounds is how often a size is tried before it counts as too large: with 10 % loss each way
	// a size is missed with 0.19⁴ ≈ 10⁻³.
	mtuRounds  = 4
	mtuWaitMin = 300 * time.Millisecond
	mtuWaitMax = time.Second
)

// LargestOverlayMTU returns the largest overlay packet, in bytes, that is tried on a direct path,
// given the overlay MTU of the gateway's tunnel.
func LargestOverlayMTU(overlay int) int { return max(overlay, usualOverlay) }

// UnmeasuredOverlayMTU returns the overlay packet, in bytes, that a path is assumed to carry until
// it is measured: the overlay's largest, but no more than fits Ethernet over IPv6. WireGuard pads
// smaller packets than its device's MTU to 16 bytes.
func UnmeasuredOverlayMTU(overlay int) int {
	if overlay > usualOverlay {
		return usualOverlay &^ 15
	}
	return overlay
}

// Size is a size to try on a path.
type Size struct {
	Payload int // of UDP, in bytes: the probe's
	// Overlay is the largest tunnel packet that surely fits, in bytes: WireGuard pads packets to 16
	// bytes, up to the MTU of its device.
	Overlay int
}

// Sizes lists the sizes to try on a direct path to an address, largest first, given the overlay MTU
// of the gateway's tunnel.
func Sizes(to netip.Addr, overlay int) []Size {
	largest := LargestOverlayMTU(overlay)
	var out []Size
	for _, payload := range payloads(to, largest) {
		out = append(out, Size{payload, overlayOf(payload, largest)})
	}
	return out
}

// payloads lists the sizes of UDP payload to try for a largest overlay packet, largest first. STUN
// messages are multiples of four bytes long (RFC 8489 §5), so what holds that packet is rounded up,
// and what fits an IP packet is rounded down.
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

// overlayOf returns the largest tunnel packet that a UDP payload holds, if largest is the device's
// MTU.
func overlayOf(payload, largest int) int {
	if o := payload - tunnelOverhead; o < largest {
		return o &^ 15
	}
	return largest
}

// largestFor returns the largest overlay packet to try on a pair.
func (m *Machine) largestFor(p *pair) int {
	if p.class == classRelayed {
		return usualOverlay
	}
	return LargestOverlayMTU(m.o.OverlayMTU)
}

// mtu is what is known about the sizes that pass on a pair.
type mtu struct {
	payload int       // the largest known to pass; 0 = none
	checked time.Time // the end of the last search; zero = one is needed
	search  *sizeSearch
}

// sizeSearch tries the largest size alone, and then in each round all sizes above the best, from
// the top.
type sizeSearch struct {
	sizes   []int
	best    int // index of the largest size that passed, len(sizes) if none did
	refused int // the smallest size that our own host rejects; 0 = none
	round   int
	next    int       // index of the next size to try
	due     time.Time // when
}

// suspect requests a new search, since something is not getting through.
func (u *mtu) suspect() { u.checked, u.search = time.Time{}, nil }

// forget resets it for another network.
func (u *mtu) forget() { *u = mtu{} }

// overlayMTU returns the largest tunnel packet that passes unfragmented on the pair, in bytes; 0 =
// unknown.
func (m *Machine) overlayMTU(p *pair) int {
	if p == nil || p.mtu.payload == 0 {
		return 0
	}
	return overlayOf(p.mtu.payload, LargestOverlayMTU(m.o.OverlayMTU))
}

// measure makes sure that the selected path is measured.
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

// last returns the index after the last size of the round.
func (s *sizeSearch) last() int {
	if s.round == 0 {
		return 1
	}
	return s.best
}

// endRound starts the next round, or ends the search, once the answers are in.
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
		p.barredUntil = m.now // the silence is explained: packets were too large
	}
	m.talk.stale = true
}

// peerMTU handles the MTU of the peer's direction. If it fell below ours, ours is measured again:
// the peer's silence may have been the loss of our packets, which we do not notice while we hear
// the peer. The most that a tunnel of the usual MTU sends says nothing about larger packets.
func (m *Machine) peerMTU(mtu int) {
	changed := mtu != m.talk.mtu
	m.talk.mtu = mtu
	if changed && mtu > 0 && mtu != usualOverlay && m.sel != nil && m.overlayMTU(m.sel) > mtu {
		m.sel.mtu.suspect()
	}
}

// sizeDue returns the pair and the size to try, when it is time.
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

// sizeSent schedules what follows a padded probe: the next size, or the wait for answers.
func (m *Machine) sizeSent(p *pair) {
	s := p.mtu.search
	s.next++
	s.due = m.now
	if s.next >= s.last() {
		s.due = m.now.Add(min(max(3*p.rtt, mtuWaitMin), mtuWaitMax))
	}
}

// crossed handles the answer to a padded probe.
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

// tooLarge handles our own host's refusal to send a padded probe.
func (m *Machine) tooLarge(p *pair, size int) {
	if s := p.mtu.search; s != nil && (s.refused == 0 || size < s.refused) {
		s.refused = size
	}
}
