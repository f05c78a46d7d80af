package relay

import (
	"bytes"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"
)

var fuzzServer = netip.MustParseAddrPort("203.0.113.1:3478")

// testLink returns a link to nowhere, with a library behind it.
func testLink(t testing.TB) *link {
	s := Server{Address: "203.0.113.1:3478", Username: "edge", Password: "secret"}
	l := newLink(TransportUDP, place{addr: fuzzServer}, s, new(atomic.Uint64))
	l.write = func([]byte) error { return nil }
	lib, err := newLibrary(l, s, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	l.lib = lib
	return l
}

// indication returns the beginning of a Data indication.
func indication() []byte {
	b := newRequest(methodData, txID{1})
	b[1] |= 0x10
	return b
}

// The library panics on an XOR-PEER-ADDRESS without a value at the end of a message, and anyone
// who can forge the server's address can send one.
func TestAnEmptyPeerAddressDoesNotReachTheLibrary(t *testing.T) {
	l := testLink(t)
	if l.handle(addAttr(indication(), attrXORPeerAddress, nil)) {
		t.Error("it was taken for a message of ours")
	}
	if n := l.malformed.Load(); n != 1 {
		t.Errorf("%d malformed messages are counted, want 1", n)
	}
}

func TestRequestsAreSignedSoThatTheyVerify(t *testing.T) {
	c := credentials{username: "edge", realm: []byte("r"), nonce: []byte("n"), key: longTermKey("edge", []byte("r"), "secret")}
	tx := newTxID()
	for _, addr := range []string{"192.0.2.1", "2001:db8::1"} {
		b := c.sign(addPeer(addLifetime(newRequest(methodCreatePermission, tx), time.Minute), netip.AddrPortFrom(netip.MustParseAddr(addr), 7), tx))
		m, err := parse(b)
		if err != nil || m.method != methodCreatePermission || m.class != classRequest || m.tx != tx ||
			m.lifetime != time.Minute || string(m.realm) != "r" || string(m.nonce) != "n" {
			t.Fatalf("parsed as %+v (%v)", m, err)
		}
		if !c.verify(b, m) {
			t.Error("the signature does not verify")
		}
		b[len(b)-1] ^= 1
		if c.verify(b, m) {
			t.Error("a changed signature verifies")
		}
	}
}

// RFC 5769 §2.4: a request with long-term authentication. This package must compute what the RFC
// contains.
func TestLongTermKeyIsThatOfTheRFC(t *testing.T) {
	username := "\u30de\u30c8\u30ea\u30c3\u30af\u30b9"
	tx := txID{0x78, 0xad, 0x34, 0x33, 0xc6, 0xad, 0x72, 0xc0, 0x29, 0xda, 0x41, 0x2e}
	c := credentials{
		username: username, realm: []byte("example.org"), nonce: []byte("f//499k954d6OL34oL9FSTvy64sA"),
		key: longTermKey(username, []byte("example.org"), "TheMatrIX"),
	}
	b := newRequest(methodBinding, tx)
	b = addAttr(b, attrUsername, []byte(username)) // the RFC's order: user, nonce, realm
	b = addAttr(b, attrNonce, c.nonce)
	b = addAttr(b, attrRealm, c.realm)
	b = addAttr(b, attrMessageIntegrity, []byte{
		0xf6, 0x70, 0x24, 0x65, 0x6d, 0xd6, 0x4a, 0x3e, 0x02, 0xb8,
		0xe0, 0x71, 0x2e, 0x85, 0xc9, 0xa2, 0x8c, 0xa8, 0x96, 0x66,
	})
	m, err := parse(b)
	if err != nil || !c.verify(b, m) {
		t.Errorf("the RFC's own message does not verify (%v)", err)
	}
}

func TestMalformedMessagesAreRefused(t *testing.T) {
	good := newRequest(methodBinding, txID{})
	for name, b := range map[string][]byte{
		"empty":                 nil,
		"trailing bytes":        append(bytes.Clone(good), 0, 0, 0, 0),
		"another cookie":        append(append(bytes.Clone(good[:4]), 1), good[5:]...),
		"attribute beyond end":  addAttr(bytes.Clone(good), attrLifetime, nil)[:headerSize+2],
		"short lifetime":        addAttr(bytes.Clone(good), attrLifetime, []byte{1}),
		"short error":           addAttr(bytes.Clone(good), attrErrorCode, []byte{0, 0, 4}),
		"error of class 9":      addAttr(bytes.Clone(good), attrErrorCode, []byte{0, 0, 1, 0}),
		"address of no family":  addAttr(bytes.Clone(good), attrXORMapped, make([]byte, 8)),
		"address of one byte":   addAttr(bytes.Clone(good), attrXORRelayed, []byte{0}),
		"address too long":      addAttr(bytes.Clone(good), attrXORPeerAddress, make([]byte, 24)),
		"short integrity":       addAttr(bytes.Clone(good), attrMessageIntegrity, make([]byte, 16)),
		"realm beyond its size": addAttr(bytes.Clone(good), attrRealm, make([]byte, maxText+1)),
	} {
		if m, err := parse(b); err == nil {
			t.Errorf("%s: parsed as %+v", name, m)
		}
	}
}

// A packet from the server's address, genuine or forged, must not stop the gateway, neither by a
// panic nor by blocking its socket.
func FuzzHandle(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0x40, 0, 0, 4, 1, 2, 3, 4})
	f.Add([]byte{0x40, 0, 0xff, 0xff})
	f.Add(addAttr(indication(), attrXORPeerAddress, nil))
	f.Add(addAttr(addPeer(indication(), netip.MustParseAddrPort("192.0.2.1:7"), txID{1}), 0x0013, []byte("data")))
	challenge := addAttr(newRequest(methodAllocate, txID{2}), attrErrorCode, []byte{0, 0, 4, 1})
	challenge[0], challenge[1] = 0x01, 0x13
	f.Add(addAttr(addAttr(challenge, attrRealm, []byte("r")), attrNonce, []byte("n")))
	l := testLink(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		if m, err := parse(b); err == nil {
			// An answer to one of our requests, too.
			l.mu.Lock()
			l.pending[m.tx] = &transaction{sent: time.Now(), answer: make(chan message, 1)}
			l.mu.Unlock()
		}
		l.handle(b)
		if !bytes.Equal(b, before) {
			t.Error("the packet was written to")
		}
	})
}

func TestExpiryKnowsTURNRESTUsernames(t *testing.T) {
	at := time.Unix(1_790_000_000, 0)
	for username, want := range map[string]time.Time{
		"1790000000:edge": at, "1790000000": at, "1790000000:": at,
		"edge": {}, "": {}, "edge:1790000000": {}, "17900000001:edge": {}, "-790000000:edge": {}, "1000000000": {}, "+790000000:a": {},
	} {
		got, ok := Expiry(username)
		if ok != !want.IsZero() || !got.Equal(want) {
			t.Errorf("Expiry(%q) = %v, %v; want %v", username, got, ok, want)
		}
	}
}

// Coturn without IPv4 precedes its IPv6 address by 0.0.0.0:0.
func TestTheFirstUsableRelayedAddressCounts(t *testing.T) {
	tx := newTxID()
	b := newRequest(methodAllocate, tx)
	want := netip.MustParseAddrPort("[2001:db8::1]:50000")
	for _, a := range []netip.AddrPort{netip.MustParseAddrPort("0.0.0.0:0"), want, netip.MustParseAddrPort("[2001:db8::2]:50000")} {
		at := len(b)
		b = addPeer(b, a, tx)
		b[at+1] = attrXORRelayed
	}
	if m, err := parse(b); err != nil || m.relayed != want {
		t.Errorf("got %v (%v), want %v", m.relayed, err, want)
	}
}
