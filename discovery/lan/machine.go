package lan

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/time/rate"

	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	// Rate limits of one link. Each record is sent at most once per second anyway (RFC 6762 §6),
	// so sendRate limits the effect of many askers or many addresses. A hundred responders that
	// all announce at once use a tenth of intakeRate.
	sendRate, sendBurst     = 10, 40     // messages a second
	intakeRate, intakeBurst = 1000, 2000 // messages a second
)

// identity is what is announced.
type identity struct {
	name         string
	key          peer.PublicKey
	capabilities []string
	secret       peer.PresharedKey
	ttl          time.Duration
}

// datagram is a message to send.
type datagram struct {
	link   int
	name   string // of the interface
	family Family
	to     netip.AddrPort // invalid: the group
	data   []byte
}

// machine is responder and browser on all links. It is not safe for concurrent use.
type machine struct {
	self   identity
	random func() float64

	label  string // of the announced instance
	number int    // number in it
	host   string // full name of the announced host
	hosts  int    // its number
	port   uint16

	links     map[int]*link
	own       []netip.Addr // of all interfaces
	conflicts []time.Time  // of the last 10 s
	echoes    echoes

	out     []datagram
	renamed string // to be reported
	// Whether the found instances may have changed, and what they were at the last check.
	dirty  bool
	last   string
	lastAt time.Time
}

func newMachine(self identity, random func() float64) *machine {
	m := &machine{self: self, random: random, label: self.name, number: 1, hosts: 1, links: map[int]*link{}}
	m.nameHost()
	return m
}

// nameHost derives the host's name from the key.
func (m *machine) nameHost() {
	sum := sha256.Sum256(append([]byte("postern lan host v1"), m.self.key[:]...))
	name := "postern-" + hex.EncodeToString(sum[:8])
	if m.hosts > 1 {
		name += fmt.Sprintf("-%d", m.hosts)
	}
	m.host = name + "." + localDomain
}

// link is one interface.
type link struct {
	m     *machine
	iface Interface
	open  [families]bool
	heard time.Time // when another sender was last heard
	// Separate limits for answers to the group, answers to one asker, and our own questions.
	group, alone, asking *rate.Limiter
	intake               *rate.Limiter
	claim                claim
	answers              [families]answers
	browser              browser
}

// linkState describes an interface for the machine.
type linkState struct {
	Interface
	open [families]bool
}

// setLinks sets the interfaces, with what is open on them.
func (m *machine) setLinks(now time.Time, list []linkState) {
	gone := maps.Clone(m.links)
	m.own = nil
	for _, s := range list {
		for _, p := range s.Prefixes {
			m.own = append(m.own, p.Addr())
		}
		delete(gone, s.Index)
		l := m.links[s.Index]
		if l == nil {
			sends := func() *rate.Limiter { return rate.NewLimiter(sendRate, sendBurst) }
			l = &link{m: m, iface: s.Interface, open: s.open,
				group: sends(), alone: sends(), asking: sends(), intake: rate.NewLimiter(intakeRate, intakeBurst)}
			l.browser.start(now, m.random())
			m.links[s.Index] = l
			l.begin(now)
			continue
		}
		moved := !slices.Equal(l.iface.announceable(), s.announceable())
		more := l.open != s.open
		l.iface, l.open = s.Interface, s.open
		if more {
			l.browser.start(now, m.random())
		}
		if moved || more {
			l.reannounce(now)
		}
		if moved {
			m.dirty = true // other addresses are on-link now
		}
	}
	for index := range gone {
		delete(m.links, index)
		m.dirty = true
	}
}

// setPort sets the gateway's port; 0 = none yet.
func (m *machine) setPort(now time.Time, port uint16) {
	if port == m.port {
		return
	}
	before := m.port
	m.port = port
	for _, l := range m.sorted() {
		if before == 0 {
			l.begin(now)
		} else {
			l.reannounce(now)
		}
	}
}

// sorted returns the links in a fixed order.
func (m *machine) sorted() []*link {
	out := make([]*link, 0, len(m.links))
	for _, index := range slices.Sorted(maps.Keys(m.links)) {
		out = append(out, m.links[index])
	}
	return out
}

// outcome is what was done with a packet.
type outcome int

const (
	taken outcome = iota
	echoed
	malformed
	offLink
	excess
)

// handle handles a packet that arrived on a link.
func (m *machine) handle(now time.Time, index int, f Family, packet []byte, from netip.AddrPort) outcome {
	l := m.links[index]
	a := from.Addr().WithZone("")
	if l == nil || !l.listensTo(a) {
		return offLink
	}
	if slices.Contains(m.own, a) && m.echoes.drop(now, index, f, packet) {
		return echoed
	}
	if !l.intake.AllowN(now, 1) {
		return excess
	}
	msg, err := parse(packet)
	if err != nil {
		return malformed
	}
	if !slices.Contains(m.own, a) {
		l.heard = now
	}
	if msg.Response {
		if from.Port() == mdnsPort { // RFC 6762 §6
			l.response(now, msg, a)
		}
	} else {
		l.query(now, f, msg, from)
	}
	return taken
}

// listensTo reports whether a sender is on the link.
func (l *link) listensTo(a netip.Addr) bool {
	return a.IsValid() && !a.IsMulticast() && (a.IsLinkLocalUnicast() || l.iface.onLink(a))
}

// response handles what others announce: about our names, and about themselves.
func (l *link) response(now time.Time, msg *dns.Msg, from netip.Addr) {
	records := slices.Concat(msg.Answer, msg.Extra)
	l.contest(now, records)
	l.browser.learn(now, l, records, from)
}

// poll does what is due and returns the time of the next poll; zero = never.
func (m *machine) poll(now time.Time) (next time.Time) {
	for _, l := range m.sorted() {
		l.pollClaim(now)
		for f := range Family(families) {
			l.pollAnswers(now, f)
		}
		l.browser.poll(now, l)
		for _, at := range []time.Time{l.claim.due, l.answers[IPv4].due(), l.answers[IPv6].due(), l.browser.due()} {
			next = earlier(next, at)
		}
	}
	return next
}

// earlier returns the earlier time; zero = never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// stop sends goodbyes.
func (m *machine) stop(now time.Time) {
	for _, l := range m.sorted() {
		if l.claim.holds() {
			l.announce(now, 0)
		}
		l.claim = claim{}
	}
}

// announced reports whether the gateway is announced on any link.
func (m *machine) announced() bool {
	for _, l := range m.links {
		if l.claim.holds() {
			return true
		}
	}
	return false
}

// take returns the datagrams to send.
func (m *machine) take() []datagram {
	out := m.out
	m.out = nil
	return out
}

// takeRenamed returns the name that replaced a taken one, once.
func (m *machine) takeRenamed() string {
	name := m.renamed
	m.renamed = ""
	return name
}

// changePause is the least time between comparisons of what is found, so that many changes cost
// little. The first change is reported at once.
const changePause = 250 * time.Millisecond

// takeChanged reports whether what is found has changed since the last time, and when to ask
// again; zero = when there is a reason to.
func (m *machine) takeChanged(now time.Time) (changed bool, again time.Time) {
	if !m.dirty {
		return false, time.Time{}
	}
	if next := m.lastAt.Add(changePause); next.After(now) {
		return false, next
	}
	m.dirty, m.lastAt = false, now
	var b strings.Builder
	for _, i := range m.found(now) {
		fmt.Fprintf(&b, "%q %v %v %v %v %q %q\n", i.Name.RawUnsafe(), i.PublicKey, i.Addresses, i.Capabilities, i.Member, i.Interface, i.Err.RawUnsafe())
	}
	changed = b.String() != m.last
	m.last = b.String()
	return changed, time.Time{}
}

// multicast sends to the group: in one family, or with -1 in all that are open.
func (l *link) multicast(now time.Time, f Family, msg *dns.Msg) {
	data := pack(msg)
	if data == nil {
		return
	}
	for fam := range Family(families) {
		if (f == fam || f < 0) && l.open[fam] {
			l.m.out = append(l.m.out, datagram{link: l.iface.Index, name: l.iface.Name, family: fam, data: data})
			l.m.echoes.add(now, l.iface.Index, fam, data)
		}
	}
}

// anyFamily makes multicast send in all families.
const anyFamily Family = -1

// between returns a random time in a range, as RFC 6762 requires so that not all hosts send at
// once.
func (m *machine) between(low, high time.Duration) time.Duration {
	return low + time.Duration(m.random()*float64(high-low))
}
