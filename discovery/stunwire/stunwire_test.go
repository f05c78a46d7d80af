package stunwire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"net/netip"
	"strings"
	"testing"

	"github.com/pion/stun/v2"

	"github.com/postern-dev/postern/tunnel/foreign"
)

// Test vectors of RFC 5769 §2.1 to §2.3; the password is that of §2.
const (
	vectorPassword = "VOkJxbRl1RmTxUk/WvJxBt"
	vectorRequest  = "\x00\x01\x00\x58\x21\x12\xa4\x42\xb7\xe7\xa7\x01\xbc\x34\xd6\x86\xfa\x87\xdf\xae" +
		"\x80\x22\x00\x10STUN test client" +
		"\x00\x24\x00\x04\x6e\x00\x01\xff" +
		"\x80\x29\x00\x08\x93\x2f\xf9\xb1\x51\x26\x3b\x36" +
		"\x00\x06\x00\x09\x65\x76\x74\x6a\x3a\x68\x36\x76\x59\x20\x20\x20" +
		"\x00\x08\x00\x14\x9a\xea\xa7\x0c\xbf\xd8\xcb\x56\x78\x1e\xf2\xb5\xb2\xd3\xf2\x49\xc1\xb5\x71\xa2" +
		"\x80\x28\x00\x04\xe5\x7a\x3b\xcf"
	vectorResponse4 = "\x01\x01\x00\x3c\x21\x12\xa4\x42\xb7\xe7\xa7\x01\xbc\x34\xd6\x86\xfa\x87\xdf\xae" +
		"\x80\x22\x00\x0b\x74\x65\x73\x74\x20\x76\x65\x63\x74\x6f\x72\x20" +
		"\x00\x20\x00\x08\x00\x01\xa1\x47\xe1\x12\xa6\x43" +
		"\x00\x08\x00\x14\x2b\x91\xf5\x99\xfd\x9e\x90\xc3\x8c\x74\x89\xf9\x2a\xf9\xba\x53\xf0\x6b\xe7\xd7" +
		"\x80\x28\x00\x04\xc0\x7d\x4c\x96"
	vectorResponse6 = "\x01\x01\x00\x48\x21\x12\xa4\x42\xb7\xe7\xa7\x01\xbc\x34\xd6\x86\xfa\x87\xdf\xae" +
		"\x80\x22\x00\x0b\x74\x65\x73\x74\x20\x76\x65\x63\x74\x6f\x72\x20" +
		"\x00\x20\x00\x14\x00\x02\xa1\x47\x01\x13\xa9\xfa\xa5\xd3\xf1\x79\xbc\x25\xf4\xb5\xbe\xd2\xb9\xd9" +
		"\x00\x08\x00\x14\xa3\x82\x95\x4e\x4b\xe6\x7b\xf1\x17\x84\xc9\x7c\x82\x92\xc2\x75\xbf\xe3\xed\x41" +
		"\x80\x28\x00\x04\xc8\xfb\x0b\x4c"
)

var vectorTxID = TxID([]byte("\xb7\xe7\xa7\x01\xbc\x34\xd6\x86\xfa\x87\xdf\xae"))

func TestRFC5769Vectors(t *testing.T) {
	for _, c := range []struct {
		name, datagram string
		class          Class
		username       string
		mapped         netip.AddrPort
		unknown        int
	}{
		// PRIORITY in the sample request must be understood and is not known here.
		{"request §2.1", vectorRequest, Request, "evtj:h6vY", netip.AddrPort{}, 1},
		{"IPv4 response §2.2", vectorResponse4, Success, "", netip.MustParseAddrPort("192.0.2.1:32853"), 0},
		{"IPv6 response §2.3", vectorResponse6, Success, "", netip.MustParseAddrPort("[2001:db8:1234:5678:11:2233:4455:6677]:32853"), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := Parse([]byte(c.datagram))
			if err != nil {
				t.Fatal(err)
			}
			if m.Class != c.class || m.TxID != vectorTxID || m.Username != c.username || m.Mapped != c.mapped || len(m.Unknown) != c.unknown {
				t.Errorf("got %+v, want %+v", m, c)
			}
			for range 2 { // Verify does not change the message
				if err := m.Verify([]byte(vectorPassword)); err != nil {
					t.Errorf("the RFC's password: %v", err)
				}
				if err := m.Verify([]byte("another")); !errors.Is(err, ErrUnauthenticated) {
					t.Errorf("another password: got %v, want ErrUnauthenticated", err)
				}
			}
		})
	}
}

func TestPlainRequestIsTheHeaderAlone(t *testing.T) {
	b := BindingRequest(vectorTxID)
	want := append([]byte("\x00\x01\x00\x00\x21\x12\xa4\x42"), vectorTxID[:]...)
	if !bytes.Equal(b, want) {
		t.Errorf("got % x, want % x", b, want)
	}
}

func TestEncodedMessagesParseBack(t *testing.T) {
	key := []byte("0123456789abcdef")
	for name, m := range map[string]Message{
		"request":       {Class: Request, Username: "abcdefgh"},
		"indication":    {Class: Indication},
		"IPv4 response": {Class: Success, Mapped: netip.MustParseAddrPort("203.0.113.9:51820")},
		"IPv6 response": {Class: Success, Mapped: netip.MustParseAddrPort("[2001:db8::9]:1")},
		"4in6 response": {Class: Success, Mapped: netip.MustParseAddrPort("[::ffff:203.0.113.9]:51820")},
		"error":         {Class: Error, Code: 420, Reason: foreign.Of("Unknown Attribute"), Unknown: []uint16{0x7fff, 3}},
	} {
		for _, key := range [][]byte{nil, key} {
			t.Run(name, func(t *testing.T) {
				m.TxID = NewTxID()
				b, err := Encode(&m, key)
				if err != nil {
					t.Fatal(err)
				}
				got, err := Parse(b)
				if err != nil {
					t.Fatal(err)
				}
				mapped := netip.AddrPortFrom(m.Mapped.Addr().Unmap(), m.Mapped.Port())
				if got.Class != m.Class || got.TxID != m.TxID || got.Username != m.Username ||
					got.Mapped != mapped || got.Code != m.Code || got.Reason != m.Reason {
					t.Errorf("got %+v, want %+v", got, m)
				}
				if err := got.Verify([]byte("0123456789abcdef")); (err == nil) != (key != nil) {
					t.Errorf("verify with key %q: %v", key, err)
				}
				if m := (&stun.Message{Raw: b}); m.Decode() != nil || m.Contains(stun.AttrSoftware) {
					t.Errorf("SOFTWARE is sent, or another implementation cannot read % x", b)
				}
			})
		}
	}
}

func TestEncodeRefuses(t *testing.T) {
	for name, m := range map[string]Message{
		"response without address": {Class: Success},
		"error without code":       {Class: Error},
		"error code too large":     {Class: Error, Code: 700},
		"reason too long":          {Class: Error, Code: 400, Reason: foreign.Of(strings.Repeat("x", 764))},
		"user name too long":       {Class: Request, Username: strings.Repeat("x", 509)},
		"class that is none":       {Class: 9},
	} {
		if b, err := Encode(&m, nil); err == nil {
			t.Errorf("%s: got % x, want an error", name, b)
		}
	}
}

// attr returns one attribute in wire format, padded with zeros.
func attr(typ uint16, value string) string {
	h := binary.BigEndian.AppendUint16(nil, typ)
	h = binary.BigEndian.AppendUint16(h, uint16(len(value)))
	return string(h) + value + strings.Repeat("\x00", -len(value)&3)
}

// message returns a header with the right length, and the attributes.
func message(typ uint16, attrs ...string) string {
	body := strings.Join(attrs, "")
	h := binary.BigEndian.AppendUint16(nil, typ)
	h = binary.BigEndian.AppendUint16(h, uint16(len(body)))
	return string(h) + "\x21\x12\xa4\x42" + string(vectorTxID[:]) + body
}

// fingerprinted appends a valid FINGERPRINT to message(typ, attrs…).
func fingerprinted(typ uint16, attrs ...string) string {
	m := message(typ, append(attrs, attr(0x8028, "1234"))...)
	covered := m[:len(m)-8]
	sum := crc32.ChecksumIEEE([]byte(covered)) ^ 0x5354554e
	return m[:len(m)-4] + string(binary.BigEndian.AppendUint32(nil, sum))
}

func TestParseRefuses(t *testing.T) {
	mapped := attr(0x0020, "\x00\x01\xa1\x47\xe1\x12\xa6\x43")
	mac := attr(0x0008, strings.Repeat("m", 20))
	const success, failure = 0x0101, 0x0111
	if _, err := Parse([]byte(message(success, mapped, mac))); err != nil {
		t.Fatalf("the well-formed message that the others vary: %v", err)
	}
	for name, b := range map[string]string{
		"nothing":                            "",
		"a header cut short":                 vectorRequest[:19],
		"a trailing byte":                    vectorRequest + "\x00",
		"a trailing word":                    vectorRequest + "\x00\x00\x00\x00",
		"the last byte missing":              vectorRequest[:len(vectorRequest)-1],
		"a length that is no multiple of 4":  "\x00\x01\x00\x01" + vectorRequest[4:20] + "x",
		"another cookie":                     strings.Replace(vectorRequest, "\x21\x12\xa4\x42", "\x21\x12\xa4\x43", 1),
		"top bits set":                       "\xc0" + vectorRequest[1:],
		"another method":                     message(0x0003),
		"an attribute longer than the rest":  message(0x0001, "\x00\x06\x00\x09abcd"),
		"an attribute header cut short":      message(0x0001, "\x00\x06\x00"),
		"a wrong fingerprint":                vectorRequest[:len(vectorRequest)-1] + "\xce",
		"an attribute behind the integrity":  message(success, mapped, mac, attr(0x8022, "x")),
		"two integrities":                    message(success, mapped, mac, mac),
		"integrity, attribute, fingerprint":  fingerprinted(success, mapped, mac, attr(0x8022, "x")),
		"an attribute behind a fingerprint":  message(success, mapped, attr(0x8028, "1234"), attr(0x8022, "x")),
		"integrity of 16 bytes":              message(success, mapped, attr(0x0008, strings.Repeat("m", 16))),
		"success without mapped address":     message(success),
		"success with an unknown attribute":  message(success, mapped, attr(0x7ffe, "x")),
		"mapped address of 0 bytes":          message(success, attr(0x0020, "")),
		"mapped address of 1 byte":           message(success, attr(0x0020, "\x00")),
		"mapped address without its address": message(success, attr(0x0020, "\x00\x01\xa1\x47")),
		"IPv6 family, IPv4 length":           message(success, attr(0x0020, "\x00\x02\xa1\x47\xe1\x12\xa6\x43")),
		"IPv4 family, IPv6 length":           message(success, attr(0x0020, "\x00\x01\xa1\x47"+strings.Repeat("x", 16))),
		"mapped port 0":                      message(success, attr(0x0020, "\x00\x01\x21\x12\xe1\x12\xa6\x43")),
		"mapped address 0.0.0.0":             message(success, attr(0x0020, "\x00\x01\xa1\x47\x21\x12\xa4\x42")),
		"error without code":                 message(failure),
		"error code of 2 bytes":              message(failure, attr(0x0009, "\x00\x00")),
		"error code 99":                      message(failure, attr(0x0009, "\x00\x00\x00\x63")),
		"user name of 509 bytes":             message(0x0001, attr(0x0006, strings.Repeat("u", 509))),
		"more than MaxSize":                  message(0x0001, attr(0x8022, strings.Repeat("s", MaxSize))),
	} {
		if m, err := Parse([]byte(b)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: got %+v, %v, want ErrMalformed", name, m, err)
		}
	}
}

func TestTheFirstOfARepeatedAttributeCounts(t *testing.T) {
	m, err := Parse([]byte(message(0x0001, attr(0x0006, "first"), attr(0x0006, "second"))))
	if err != nil || m.Username != "first" {
		t.Errorf("got %+v, %v, want the user name first", m, err)
	}
}

func TestAnyFlippedBitBreaksAuthentication(t *testing.T) {
	key := []byte("key")
	b, err := Encode(&Message{Class: Request, TxID: vectorTxID, Username: "padded"}, key)
	if err != nil {
		t.Fatal(err)
	}
	b = b[:len(b)-8] // without FINGERPRINT, so that only the MAC can notice
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)-HeaderSize))
	if m, err := Parse(b); err != nil || m.Verify(key) != nil {
		t.Fatalf("without FINGERPRINT: %+v, %v", m, err)
	}
	for bit := range len(b) * 8 {
		c := bytes.Clone(b)
		c[bit/8] ^= 1 << (bit % 8)
		if m, err := Parse(c); err == nil && m.Verify(key) == nil {
			t.Errorf("bit %d of byte %d is not covered", bit%8, bit/8)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{vectorRequest, vectorResponse4, vectorResponse6, message(0x0111, attr(0x0009, "\x00\x00\x04\x14no"))} {
		f.Add([]byte(s))
	}
	f.Add([]byte(message(0x0101, attr(0x0020, "\x00\x01\xa1\x47\xe1\x12\xa6\x43"),
		attr(0x802b, "\x00\x01\x0d\x96\xc0\x00\x02\x01"), attr(0x802c, "\x00\x01\x0d\x97\xc0\x00\x02\x02"))))
	f.Add([]byte(message(1, attr(0x0003, "\x00\x00\x00\x06"), attr(0xfd57, "probe"), attr(0x0026, "pad"))))
	f.Add(BindingRequest(vectorTxID))
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		m, err := Parse(b)
		if !bytes.Equal(b, before) {
			t.Fatal("Parse changed its input")
		}
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatalf("error of another kind: %v", err)
			}
			return
		}
		if len(b)%4 != 0 || b[0]&0xc0 != 0 {
			t.Fatalf("% x was taken", b)
		}
		_ = m.Verify([]byte(vectorPassword))
		if m.Class == Request || m.Class == Success {
			checkRoundTrip(t, m)
		}
	})
}

// checkRoundTrip encodes a parsed message and parses it again.
func checkRoundTrip(t *testing.T, m *Message) {
	t.Helper()
	again, err := Encode(&Message{
		Class: m.Class, TxID: m.TxID, Username: m.Username, Mapped: m.Mapped,
		Change: m.Change, Other: m.Other, Origin: m.Origin, Probe: m.Probe,
	}, nil)
	if err != nil {
		t.Fatalf("what was read cannot be written: %+v: %v", m, err)
	}
	m2, err := Parse(again)
	if err != nil || m2.Mapped != m.Mapped || m2.Username != m.Username || m2.Change != m.Change ||
		m2.Other != m.Other || m2.Origin != m.Origin || !bytes.Equal(m2.Probe, m.Probe) {
		t.Fatalf("round trip: got %+v, %v, want %+v", m2, err, m)
	}
}
