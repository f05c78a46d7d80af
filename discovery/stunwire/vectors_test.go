package stunwire

import (
	"bytes"
	"crypto/md5"
	"errors"
	"net/netip"
	"testing"
)

// vectorLongTerm is the request of RFC 5769 §2.4, whose key is
// MD5(user name ":" realm ":" password) (RFC 8489 §9.2.2).
const vectorLongTerm = "\x00\x01\x00\x60\x21\x12\xa4\x42\x78\xad\x34\x33\xc6\xad\x72\xc0\x29\xda\x41\x2e" +
	"\x00\x06\x00\x12マトリックス\x00\x00" +
	"\x00\x15\x00\x1cf//499k954d6OL34oL9FSTvy64sA" +
	"\x00\x14\x00\x0bexample.org\x00" +
	"\x00\x08\x00\x14\xf6\x70\x24\x65\x6d\xd6\x4a\x3e\x02\xb8\xe0\x71\x2e\x85\xc9\xa2\x8c\xa8\x96\x66"

func TestRFC5769LongTermVector(t *testing.T) {
	m, err := Parse([]byte(vectorLongTerm))
	if err != nil {
		t.Fatal(err)
	}
	if m.Class != Request || m.Username != "マトリックス" || len(m.Unknown) != 0 {
		t.Errorf("got %+v, want the request of RFC 5769 §2.4", m)
	}
	key := md5.Sum([]byte("マトリックス:example.org:TheMatrIX"))
	if err := m.Verify(key[:]); err != nil {
		t.Errorf("the RFC's key: %v", err)
	}
	key[0] ^= 1
	if err := m.Verify(key[:]); !errors.Is(err, ErrUnauthenticated) {
		t.Errorf("another key: got %v, want ErrUnauthenticated", err)
	}
}

// A message whose attributes this package writes has those of the vectors.
func TestEncodeWritesTheVectorsAttributes(t *testing.T) {
	for _, c := range []struct{ name, datagram, mapped string }{
		{"IPv4 §2.2", vectorResponse4, "192.0.2.1:32853"},
		{"IPv6 §2.3", vectorResponse6, "[2001:db8:1234:5678:11:2233:4455:6677]:32853"},
	} {
		b, err := BindingResponse(vectorTxID, netip.MustParseAddrPort(c.mapped))
		if err != nil {
			t.Fatal(err)
		}
		const software = 16 // bytes, at the start of the vector
		n := len(b) - HeaderSize - 8
		if got, want := b[HeaderSize:HeaderSize+n], []byte(c.datagram)[HeaderSize+software:][:n]; !bytes.Equal(got, want) {
			t.Errorf("%s: XOR-MAPPED-ADDRESS is % x, want % x", c.name, got, want)
		}
	}
	// The MAC over the vector's text, computed by Encode: a request whose only attribute is
	// USERNAME, checked independently with Python's hmac.
	b, err := Encode(&Message{Class: Request, TxID: vectorTxID, Username: "evtj:h6vY", NoFingerprint: true}, []byte(vectorPassword))
	if err != nil {
		t.Fatal(err)
	}
	want := "\x00\x01\x00\x28\x21\x12\xa4\x42\xb7\xe7\xa7\x01\xbc\x34\xd6\x86\xfa\x87\xdf\xae" +
		"\x00\x06\x00\x09evtj:h6vY\x00\x00\x00" +
		"\x00\x08\x00\x14\x03\x82\xc4\x6e\x3e\x4c\x41\x3a\x02\x5e\xc8\xc4\x49\xf2\xc7\x69\x4a\xb9\xc0\x8c"
	if string(b) != want {
		t.Errorf("got  %x\nwant %x", b, want)
	}
}
