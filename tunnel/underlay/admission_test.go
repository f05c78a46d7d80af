package underlay

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"

	"github.com/postern-dev/postern/tunnel/peer"
)

// handshaker makes messages for a gateway and reads its cookies, with wireguard-go's code.
type handshaker struct {
	device.CookieGenerator
	from  peer.Path
	known bool // whether its path is a peer's

	// For the oracle: the path and the secret of its cookie.
	cookie      bool
	cookieFrom  peer.Path
	cookieBaked time.Time

	made uint64 // messages
}

func (h *handshaker) initiation(index uint32) []byte { return h.message(typeInitiation, index, 0) }

func (h *handshaker) message(typ byte, index, answers uint32) []byte {
	m := make([]byte, map[byte]int{typeInitiation: sizeInitiation, typeResponse: sizeResponse}[typ])
	m[0] = typ
	binary.LittleEndian.PutUint32(m[4:], index)
	if typ == typeResponse {
		binary.LittleEndian.PutUint32(m[8:], answers)
	}
	h.made++
	binary.LittleEndian.PutUint64(m[12:], h.made) // the ephemeral key
	h.AddMacs(m)
	return m
}

// take reads a cookie reply as a device does.
func (h *handshaker) take(reply []byte) bool {
	var m device.MessageCookieReply
	if err := binary.Read(bytes.NewReader(reply), binary.LittleEndian, &m); err != nil {
		return false
	}
	return m.Type == device.MessageCookieReplyType && h.ConsumeReply(&m)
}

// past is a naive oracle for pace: it stores when everything passed.
type past struct {
	at       []time.Time
	interval time.Duration
	burst    int
}

// ready is the definition: of all events since any moment, at most the burst plus one per
// interval have passed.
func (p *past) ready(now time.Time) bool {
	for j, t := range p.at {
		since := len(p.at) - j + 1 // with this one
		if time.Duration(since-p.burst)*p.interval > now.Sub(t) {
			return false
		}
	}
	return true
}

func (p *past) take(now time.Time) bool {
	ready := p.ready(now)
	if ready {
		p.at = append(p.at, now)
	}
	return ready
}

// oracle predicts what happens to a message, from all earlier ones.
type oracle struct {
	strangers, known, proven, answers past
	sources, networks                 map[netip.Prefix]*past
	// tooManyOf counts messages that only their source's or network's limit kept out.
	tooManyOf struct{ source, network int }
	sent      []uint32
	secret    time.Time // when the current one was made
}

func newOracle() *oracle {
	return &oracle{
		strangers: past{interval: strangersInterval, burst: strangersBurst},
		known:     past{interval: knownInterval, burst: knownBurst},
		proven:    past{interval: provenInterval, burst: provenBurst},
		answers:   past{interval: answersInterval, burst: answersBurst},
		sources:   make(map[netip.Prefix]*past),
		networks:  make(map[netip.Prefix]*past),
	}
}

// event is a message and what the oracle cannot see in it.
type event struct {
	m       []byte
	forUs   bool
	answers uint32 // the index of one of our messages that it answers
	forged  bool   // whether its mac2 is forged
}

func (o *oracle) judge(h *handshaker, e event, now time.Time) verdict {
	asked := slices.Contains(o.sent, e.answers)
	switch e.m[0] {
	case typeCookieReply:
		switch {
		case !asked:
			return unasked
		case !o.answers.take(now):
			return tooMany
		}
		return admitted
	case typeResponse:
		switch {
		case !e.forUs:
			return foreign
		case !asked:
			return unasked
		case o.answers.take(now):
			return admitted
		}
	default:
		switch {
		case !e.forUs:
			return foreign
		case o.strangers.take(now), h.known && o.known.take(now):
			return admitted
		}
	}
	fresh := !o.secret.IsZero() && now.Sub(o.secret) <= cookieLifetime
	shows := !e.forged && !bytes.Equal(e.m[len(e.m)-macSize:], make([]byte, macSize))
	if !shows || !fresh || !h.cookie || h.cookieFrom != h.from || h.cookieBaked != o.secret {
		if !fresh {
			o.secret = now
		}
		return cookieDue
	}
	bits := [2]int{64, 48}
	if h.from.Remote.Addr().Is4() {
		bits = [2]int{32, 24}
	}
	source := pastOf(o.sources, h.from, bits[0], sourceInterval, sourceBurst)
	network := pastOf(o.networks, h.from, bits[1], networkInterval, networkBurst)
	switch sourceReady, networkReady := source.ready(now), network.ready(now); {
	case !o.proven.ready(now), !sourceReady && !networkReady:
		return tooMany
	case !sourceReady:
		o.tooManyOf.source++
		return tooMany
	case !networkReady:
		o.tooManyOf.network++
		return tooMany
	}
	source.take(now)
	network.take(now)
	o.proven.take(now)
	return admitted
}

// pastOf returns the past of the prefix of a path's address.
func pastOf(all map[netip.Prefix]*past, p peer.Path, bits int, interval time.Duration, burst int) *past {
	of := netip.PrefixFrom(p.Remote.Addr(), bits).Masked()
	if all[of] == nil {
		all[of] = &past{interval: interval, burst: burst}
	}
	return all[of]
}

// population returns peers and strangers at several addresses, in eight sources of two networks.
// No two share a slot by chance.
func population(a *admission, key peer.PublicKey) []*handshaker {
	var all []*handshaker
	sources, networks := make(map[*pace]bool), make(map[*pace]netip.Addr)
	for i := 0; len(sources) < 8; i++ {
		// The third byte, or the third pair of bytes, identifies the network.
		addr := netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)})
		if i%2 == 0 {
			addr = netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 5: byte(i >> 8), 7: byte(i), 15: 1})
		}
		source, network := a.sources.of(sourceOf(addr)), a.networks.of(networkOf(addr))
		if other, ok := networks[network]; sources[source] || ok && other != networkOf(addr) {
			continue
		}
		sources[source], networks[network] = true, networkOf(addr)
		for port := range uint16(3) {
			h := &handshaker{from: peer.Direct(netip.AddrPortFrom(addr, 1000+port)), known: port == 0}
			h.Init(device.NoisePublicKey(key))
			all = append(all, h)
			if addr.Is6() {
				addr = addr.Next()
			}
		}
	}
	return all
}

// move changes its path now and then: its NAT has rebound, or it uses a relay.
func (h *handshaker) move(r *rand.Rand) {
	switch r.IntN(150) {
	case 0:
		h.from.Remote = netip.AddrPortFrom(h.from.Remote.Addr(), uint16(2000+r.IntN(3)))
	case 1:
		h.from.Via = []string{"", "relay-1", "relay-2"}[r.IntN(3)]
	}
}

// A long mixture of honest and hostile messages is judged as by an oracle that remembers
// everything.
func TestAdmissionAgainstAnOracle(t *testing.T) {
	for seed := range uint64(oracleSeeds) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 5))
			key, other := newPublicKey(t), newPublicKey(t)
			b := NewPacket(listenLoopback, Options{})
			if err := b.SetPublicKey(key); err != nil {
				t.Fatal(err)
			}
			a, o := &b.admission, newOracle()
			all := population(a, key)
			var stray handshaker
			stray.Init(device.NoisePublicKey(other))
			var seen [verdicts]int
			for step := range 6000 {
				time.Sleep(pauseBetween(r, step)) // virtual
				h := all[r.IntN(len(all))]
				h.move(r)
				if r.IntN(10) == 0 {
					index := r.Uint32()
					a.sending((&handshaker{}).message(typeInitiation+byte(r.IntN(2)), index, 0))
					o.sent = append(o.sent, index)
				}
				e, now := anyEvent(r, h, &stray, o.sent), time.Now()
				var reply [sizeCookieReply]byte
				got := a.judge(e.m, h.from, h.known, now, &reply)
				if want := o.judge(h, e, now); got != want {
					t.Fatalf("seed %d, step %d: type %d from %v: got %v, want %v", seed, step, e.m[0], h.from, got, want)
				}
				seen[got]++
				// A client does not always have time to read a reply before it continues.
				if got == cookieDue && r.IntN(3) == 0 && h.take(reply[:]) {
					h.cookie, h.cookieFrom, h.cookieBaked = true, h.from, o.secret
				}
			}
			for v, n := range seen {
				if n == 0 {
					t.Errorf("seed %d: no message was %v: the mixture is a poor one", seed, verdict(v))
				}
			}
			if n := o.tooManyOf; n.source == 0 || n.network == 0 {
				t.Errorf("seed %d: %d messages were too many of a source alone and %d of a network: the mixture is a poor one", seed, n.source, n.network)
			}
		})
	}
}

func newPublicKey(t *testing.T) peer.PublicKey {
	t.Helper()
	k, err := peer.NewPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	return k.Public()
}

// pauseBetween returns pauses for floods, for calm, and sometimes for cookies to expire.
func pauseBetween(r *rand.Rand, step int) time.Duration {
	switch {
	case r.IntN(300) == 0:
		return time.Duration(r.IntN(int(3 * time.Minute)))
	case step/500%2 == 0:
		return time.Duration(max(0, r.IntN(4000)-2000)) // often at once
	default:
		return time.Duration(r.IntN(int(5 * time.Millisecond)))
	}
}

// anyEvent returns a random event.
func anyEvent(r *rand.Rand, h, stray *handshaker, sent []uint32) event {
	e := event{forUs: true, answers: r.Uint32()}
	if len(sent) > 0 && r.IntN(4) > 0 {
		e.answers = sent[r.IntN(len(sent))]
	}
	switch r.IntN(8) {
	case 0:
		e.m = make([]byte, sizeCookieReply)
		e.m[0] = typeCookieReply
		binary.LittleEndian.PutUint32(e.m[4:], e.answers)
	case 1, 2:
		e.m = h.message(typeResponse, r.Uint32(), e.answers)
	case 3:
		e.m, e.forUs = stray.message(typeInitiation+byte(r.IntN(2)), r.Uint32(), e.answers), false
	case 4:
		e.m, e.forged = h.initiation(r.Uint32()), true
		binary.LittleEndian.PutUint64(e.m[len(e.m)-macSize:], r.Uint64()|1)
	default:
		e.m = h.initiation(r.Uint32())
	}
	return e
}

// The stored indices of our own messages are bounded, and the latest are among them.
func TestIndicesAreBounded(t *testing.T) {
	x := indices{known: make(map[uint32]struct{})}
	for i := range uint32(3 * indicesKept) {
		x.add(i)
		x.add(i) // again, as for an initiation on two paths
	}
	if len(x.known) != indicesKept || len(x.order) != indicesKept {
		t.Errorf("%d indices are known and %d in order, want %d", len(x.known), len(x.order), indicesKept)
	}
	for _, i := range []uint32{2*indicesKept - 1, 2 * indicesKept, 3*indicesKept - 1} {
		if want := i >= 2*indicesKept; x.has(i) != want {
			t.Errorf("index %d: known is %v, want %v", i, !want, want)
		}
	}
}

// An initiation of ours that came back is known as such however many have been sent since.
func TestOurOwnInitiationStaysRecognised(t *testing.T) {
	forEachKind(t, func(t *testing.T, make func(Options) *Bind) {
		b := start(t, make(Options{}))
		if err := b.SetPublicKey(newPublicKey(t)); err != nil {
			t.Fatal(err)
		}
		h := handshaker{}
		h.Init(device.NoisePublicKey(newPublicKey(t)))
		for i, ours := range []bool{true, false} {
			m := h.initiation(uint32(i))
			if ours {
				b.admission.sending(m)
			}
			b.filter([][]byte{m}, []int{len(m)}, []conn.Endpoint{b.inner.endpoint(netip.AddrPortFrom(loopback4, uint16(1000+i)))})
			for n := range uint32(indicesKept) {
				b.admission.sending(h.initiation(2 + n))
			}
			all := b.Observations().Initiations
			if len(all) != 1 || all[0].Ours != ours {
				t.Errorf("got %v, want one initiation, ours: %v", all, ours)
			}
		}
	})
}

// The reply goes to the source of the message. A message that is not admitted is removed from the
// batch, not noted as a handshake, and counted.
func TestFloodIsAnsweredByCookiesAlone(t *testing.T) {
	forEachKind(t, func(t *testing.T, make func(Options) *Bind) {
		b := start(t, make(Options{}))
		key := newPublicKey(t)
		if err := b.SetPublicKey(key); err != nil {
			t.Fatal(err)
		}
		c := plain(t, loopback4)
		h := handshaker{}
		h.Init(device.NoisePublicKey(key))
		const flood = 10_000
		packets, sizes, eps := [][]byte{nil}, []int{sizeInitiation}, []conn.Endpoint{b.inner.endpoint(localAddr(c))}
		passed, cookies := 0, 0
		for range flood { // however slow the machine is, some arrive faster than allowed
			packets[0], sizes[0] = h.initiation(1), sizeInitiation
			b.filter(packets, sizes, eps)
			if sizes[0] > 0 {
				passed++
				continue
			}
			if reply, _ := read(t, c); !h.take(reply) {
				t.Fatalf("got %x, want a cookie reply", reply)
			}
			cookies++
			break
		}
		if passed < strangersBurst || cookies != 1 {
			t.Fatalf("%d passed and %d cookies came, want at least %d and 1", passed, cookies, strangersBurst)
		}
		packets[0], sizes[0] = h.initiation(2), sizeInitiation
		if b.filter(packets, sizes, eps); sizes[0] == 0 {
			t.Error("the cookie did not let its owner in")
		}
		if got := b.Counters(); got.CookieReplies != 1 || got.Dropped["handshake-cookie"] != 1 {
			t.Errorf("got %+v, want 1 cookie reply", got)
		}
	})
}
