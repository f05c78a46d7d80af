package underlay

import (
	"encoding/binary"
	"hash/maphash"
	"net/netip"
	"sync"
	"time"

	"golang.zx2c4.com/wireguard/conn"

	"github.com/postern-dev/postern/tunnel/peer"
)

// Limits of the handshake messages given to the device, per second and in a burst.
//
// The device holds a buffer of 64 KiB for each message, and would itself queue 1,024. The bursts
// add up to 120 messages, 7.5 MiB at worst. That stays below the 128 at which the device considers
// itself under load and demands its own cookies, which ours would not satisfy. The rates of
// initiations add up to 600 a second, which take 60 % of one core of a small machine (1 ms each),
// and 6 % of others.
const (
	strangersInterval, strangersBurst = time.Second / 100, 32
	knownInterval, knownBurst         = time.Second / 200, 32
	provenInterval, provenBurst       = time.Second / 300, 24
	answersInterval, answersBurst     = time.Second / 1000, 32
	// A source that has shown a cookie has wireguard-go's limits. All sources of a network together
	// get a fifth of what all proven sources get: a provider's customer can use up to 65,536
	// sources of a /48.
	sourceInterval, sourceBurst   = time.Second / 20, 5
	networkInterval, networkBurst = time.Second / 60, 12
)

// admission decides which handshake messages the device is given, as whitepaper §5.3 describes.
// When there are more than the device should verify, senders must first show, by a cookie, that
// they receive what is sent to their address. It needs none of the gateway's secrets: the keys of
// both MACs derive from its public key.
//
//	initiation, response ─▶ mac1 is for our key ─▶ response: to something we sent
//	  ─▶ within the limit of its kind (known path, stranger, answer)   ─▶ device
//	  ─▶ valid cookie, within the limits of its source, of that one's network,
//	     and of all proven                                              ─▶ device
//	  ─▶ no valid cookie: a cookie reply
//	cookie reply ─▶ to something we sent ─▶ within the limit of answers ─▶ device
//
// An admitted message may still have to wait, if it crossed one of ours ([crossings]) or is a copy
// ([copies]).
type admission struct {
	mu                                sync.Mutex
	cookies                           *cookies // nil until there is a key: everything passes
	strangers, known, proven, answers pace
	sources, networks                 sources
	sent                              indices

	replies sync.Pool // *cookieReply: a flood must not create garbage
}

// verdict is the decision on a handshake message.
type verdict uint8

const (
	admitted verdict = iota
	// foreign: its mac1 is not for our public key.
	foreign
	// unasked: it answers nothing that we have sent recently.
	unasked
	// cookieDue: the sender must repeat it with the cookie that we send.
	cookieDue
	// tooMany: above the limit of messages with a cookie, or of cookie replies.
	tooMany

	verdicts // the number of verdicts
)

// String is the reason as a metric label.
func (v verdict) String() string {
	switch v {
	case admitted:
		return "admitted"
	case foreign:
		return "handshake-mac"
	case unasked:
		return "handshake-unasked"
	case cookieDue:
		return "handshake-cookie"
	default:
		return "handshake-rate"
	}
}

func (a *admission) init() {
	a.strangers = pace{interval: strangersInterval, burst: strangersBurst}
	a.known = pace{interval: knownInterval, burst: knownBurst}
	a.proven = pace{interval: provenInterval, burst: provenBurst}
	a.answers = pace{interval: answersInterval, burst: answersBurst}
	a.sources = sources{interval: sourceInterval, burst: sourceBurst, seed: maphash.MakeSeed()}
	a.networks = sources{interval: networkInterval, burst: networkBurst, seed: maphash.MakeSeed()}
	a.sent.known = make(map[uint32]struct{})
	a.replies.New = func() any { return new(cookieReply) }
}

// SetPublicKey sets the key that handshake messages must be made for. From then on the device gets
// only as many as it can verify in time: see the README. It fails if the cryptography is forbidden.
func (b *Bind) SetPublicKey(k peer.PublicKey) error {
	c, err := newCookies(k)
	if err != nil {
		return err
	}
	b.admission.mu.Lock()
	defer b.admission.mu.Unlock()
	b.admission.cookies = c
	return nil
}

// judge decides on a handshake message that arrived on a path; known reports whether the path is a
// peer's. With cookieDue it writes the reply.
func (a *admission) judge(m []byte, from peer.Path, known bool, now time.Time, reply *[sizeCookieReply]byte) verdict {
	a.mu.Lock()
	defer a.mu.Unlock()
	v := a.judgeLocked(m, known, now)
	switch {
	case v != cookieDue:
		return v
	case !a.cookies.shown(m, from, now):
		if a.cookies.reply(m, from, now, reply) != nil { // no random numbers
			return tooMany
		}
		return cookieDue
	case a.takeProven(from.Remote.Addr(), now):
		return admitted
	default:
		return tooMany
	}
}

// takeProven counts a message with a cookie, if it is within all three limits. One that exceeds a
// limit counts against none.
func (a *admission) takeProven(from netip.Addr, now time.Time) bool {
	source, network := a.sources.of(sourceOf(from)), a.networks.of(networkOf(from))
	if !source.ready(now) || !network.ready(now) || !a.proven.ready(now) {
		return false
	}
	source.take(now)
	network.take(now)
	a.proven.take(now)
	return true
}

// judgeLocked decides on a message without regard to its cookie.
func (a *admission) judgeLocked(m []byte, known bool, now time.Time) verdict {
	switch {
	case a.cookies == nil:
		return admitted
	case m[0] == typeCookieReply:
		if !a.sent.has(binary.LittleEndian.Uint32(m[4:])) { // receiver_index
			return unasked
		}
		if !a.answers.take(now) {
			return tooMany
		}
		return admitted
	case !a.cookies.forUs(m):
		return foreign
	case m[0] == typeResponse:
		if !a.sent.has(binary.LittleEndian.Uint32(m[8:])) { // receiver_index
			return unasked
		}
		if !a.answers.take(now) {
			return cookieDue
		}
		return admitted
	case a.strangers.take(now), known && a.known.take(now):
		return admitted
	default:
		return cookieDue
	}
}

// sending notes a message about to be sent, if it expects an answer.
func (a *admission) sending(m []byte) {
	if !isInitiation(m) && !isResponse(m) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sent.add(binary.LittleEndian.Uint32(m[4:])) // sender_index
}

// hasSent reports whether an initiation has the index of a message that was sent from here.
func (a *admission) hasSent(initiation []byte) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sent.has(binary.LittleEndian.Uint32(initiation[4:])) // sender_index
}

// admits decides on a WireGuard message, counts it if it is dropped, and sends the cookie reply
// that is due: 64 bytes for 92 or 148, to the source address.
func (b *Bind) admits(m []byte, from conn.Endpoint) bool {
	if m[0] == typeData {
		return true
	}
	path := pathOf(from)
	now := time.Now()
	reply := b.admission.replies.Get().(*cookieReply)
	defer b.admission.replies.Put(reply)
	v := b.admission.judge(m, path, b.paths.has(path), now, &reply.message)
	if m[0] == typeInitiation {
		b.observed.initiationCame(m, path, v == admitted, v == foreign && b.admission.hasSent(m), now)
	}
	if v == admitted {
		return b.inTurn(m, from, now)
	}
	b.counters.refused[v].Add(1)
	if v == cookieDue {
		reply.bufs[0] = reply.message[:]
		if b.sendDirect(reply.bufs[:], from) == nil {
			b.counters.cookies.Add(1)
		}
	}
	return false
}

// cookieReply is room for one.
type cookieReply struct {
	message [sizeCookieReply]byte
	bufs    [1][]byte
}

// indicesKept bounds the stored session indices: this many initiations may wait for an answer.
const indicesKept = 4096

// indices stores the last session indices that we used in messages.
type indices struct {
	known map[uint32]struct{}
	order []uint32 // a ring once it is full
	next  int      // the oldest
}

func (x *indices) has(index uint32) bool { _, ok := x.known[index]; return ok }

func (x *indices) add(index uint32) {
	if x.has(index) {
		return
	}
	x.known[index] = struct{}{}
	if len(x.order) < indicesKept {
		x.order = append(x.order, index)
		return
	}
	delete(x.known, x.order[x.next])
	x.order[x.next] = index
	x.next = (x.next + 1) % indicesKept
}
