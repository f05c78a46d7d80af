package relay

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"
)

// openServer is a server without authentication, as far as Allocate and Refresh are concerned. It
// is a gateway's socket, too.
type openServer struct {
	mu     sync.Mutex
	handle func([]byte) bool
	held   bool // an allocation
	ended  int  // deleted allocations
	work   sync.WaitGroup
}

func (s *openServer) AddServer(_ netip.AddrPort, handle func([]byte) bool) func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handle = handle
	return func() {}
}

func (s *openServer) WriteTo(b []byte, _ netip.AddrPort) error {
	m, err := parse(b)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	answer, handle := s.answerLocked(m), s.handle
	s.work.Go(func() { handle(answer) })
	return nil
}

// answerLocked grants everything, without a realm.
func (s *openServer) answerLocked(m message) []byte {
	b := newRequest(m.method, m.tx)
	if m.method == methodAllocate && s.held {
		b = addAttr(b, attrErrorCode, []byte{0, 0, codeMismatch / 100, codeMismatch % 100})
		binary.BigEndian.PutUint16(b, binary.BigEndian.Uint16(b)|0x0110)
		return b
	}
	lifetime := requestLifetime
	switch m.method {
	case methodAllocate:
		s.held = true
		for _, kind := range []uint16{attrXORRelayed, attrXORMapped} { // Their value is XOR-PEER-ADDRESS's.
			address := addPeer(newRequest(m.method, m.tx), netip.AddrPortFrom(netip.MustParseAddr("203.0.113.1"), 0), m.tx)
			b = addAttr(b, kind, address[headerSize+4:])
		}
	case methodRefresh:
		lifetime = m.lifetime
		if s.held && lifetime == 0 {
			s.held = false
			s.ended++
		}
	}
	b = addLifetime(b, lifetime)
	binary.BigEndian.PutUint16(b, binary.BigEndian.Uint16(b)|0x0100)
	return b
}

// Such a server relays for anyone, and its answers cannot be authenticated.
func TestAServerThatAsksForNoCredentialsIsNamed(t *testing.T) {
	for _, orphan := range []bool{false, true} { // an allocation from before a restart, whose deletion was lost
		s := &openServer{held: orphan}
		c := New(Options{
			Server: Server{Address: "203.0.113.1:3478", Username: "edge", Password: "secret", Transport: TransportUDP}, Socket: s,
			ID: func() string { return "relay-1" },
			Attach: func(string, func([][]byte, netip.AddrPort) error) (func([]byte, netip.AddrPort), func()) {
				t.Error("an allocation without authentication was taken")
				return func([]byte, netip.AddrPort) {}, func() {}
			},
		})
		began := time.Now()
		_, f := c.establish(t.Context(), 0)
		if f == nil || !strings.Contains(f.words, "the server asks for no credentials: switch on lt-cred-mech or use-auth-secret there") {
			t.Errorf("the failure is %v", f)
		}
		s.work.Wait()
		if s.held || s.ended == 0 {
			t.Errorf("after %v the server still holds an allocation", time.Since(began))
		}
	}
}

// Once there is a key, a success without a signature is a forgery.
func TestAnUnsignedAnswerToASignedRequestIsDropped(t *testing.T) {
	l := testLink(t)
	l.write = func([]byte) error { return nil }
	request := credentials{username: "edge", realm: []byte("r"), nonce: []byte("n"), key: []byte("k")}.sign(newRequest(methodRefresh, txID{3}))
	if _, err := l.WriteTo(request, nil); err != nil {
		t.Fatal(err)
	}
	forged := addLifetime(newRequest(methodRefresh, txID{3}), time.Minute)
	binary.BigEndian.PutUint16(forged, binary.BigEndian.Uint16(forged)|0x0100)
	if l.handle(forged); l.malformed.Load() != 1 || l.isOpen() {
		t.Errorf("%d malformed messages are counted, want the forged one", l.malformed.Load())
	}
}
