package stunwire

import (
	"bytes"
	"errors"
	"net/netip"
	"strings"
	"testing"
)

func TestRFC5780Attributes(t *testing.T) {
	mapped := attr(0x0020, "\x00\x01\xa1\x47\xe1\x12\xa6\x43")
	const success = 0x0101
	for _, c := range []struct {
		name, datagram string
		want           Message // of the compared fields
	}{
		{"CHANGE-REQUEST, address and port", message(1, attr(0x0003, "\x00\x00\x00\x06")), Message{Change: ChangeAddress | ChangePort}},
		{"CHANGE-REQUEST, port", message(1, attr(0x0003, "\x00\x00\x00\x02")), Message{Change: ChangePort}},
		{"CHANGE-REQUEST, other bits", message(1, attr(0x0003, "\xff\xff\xff\xfc")), Message{Change: ChangeAddress}},
		{"CHANGE-REQUEST in a response", message(success, mapped, attr(0x0003, "\x00\x00\x00\x06")), Message{}},
		{"PADDING", message(1, attr(0x0026, strings.Repeat("p", 1024))), Message{}},
		{"IPv4 addresses", message(success, mapped, attr(0x802b, "\x00\x01\x0d\x96\xc0\x00\x02\x01"), attr(0x802c, "\x00\x01\x0d\x97\xc0\x00\x02\x02")),
			Message{Origin: netip.MustParseAddrPort("192.0.2.1:3478"), Other: netip.MustParseAddrPort("192.0.2.2:3479")}},
		{"IPv6 address", message(success, mapped, attr(0x802c, "\x00\x02\x0d\x97\x20\x01\x0d\xb8"+strings.Repeat("\x00", 11)+"\x02")),
			Message{Other: netip.MustParseAddrPort("[2001:db8::2]:3479")}},
		{"IPv4 address in IPv6 form", message(success, mapped, attr(0x802c, "\x00\x02\x0d\x97"+strings.Repeat("\x00", 10)+"\xff\xff\xc0\x00\x02\x02")),
			Message{Other: netip.MustParseAddrPort("192.0.2.2:3479")}},
		{"other address 0.0.0.0", message(success, mapped, attr(0x802c, "\x00\x01\x0d\x97\x00\x00\x00\x00")), Message{}},
		{"other port 0", message(success, mapped, attr(0x802c, "\x00\x01\x00\x00\xc0\x00\x02\x02")), Message{}},
		{"other address in a request", message(1, attr(0x802c, "\x00\x01\x0d\x97\xc0\x00\x02\x02")), Message{}},
		{"the gateways' own", message(1, attr(0xfd57, "probe")), Message{Probe: []byte("probe")}},
		{"the gateways' own, empty", message(1, attr(0xfd57, "")), Message{Probe: []byte{}}},
	} {
		m, err := Parse([]byte(c.datagram))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if m.Change != c.want.Change || m.Other != c.want.Other || m.Origin != c.want.Origin ||
			!bytes.Equal(m.Probe, c.want.Probe) || (m.Probe == nil) != (c.want.Probe == nil) || len(m.Unknown) != 0 {
			t.Errorf("%s: got %+v, want %+v", c.name, m, c.want)
		}
	}
	for name, b := range map[string]string{
		"CHANGE-REQUEST of 3 bytes":             message(1, attr(0x0003, "\x00\x00\x06")),
		"CHANGE-REQUEST of 8 bytes":             message(1, attr(0x0003, "\x00\x00\x00\x06\x00\x00\x00\x00")),
		"OTHER-ADDRESS of 0 bytes":              message(success, mapped, attr(0x802c, "")),
		"OTHER-ADDRESS, IPv4 with IPv6's size":  message(success, mapped, attr(0x802c, "\x00\x01\x0d\x97"+strings.Repeat("x", 16))),
		"OTHER-ADDRESS, IPv6 with IPv4's size":  message(success, mapped, attr(0x802c, "\x00\x02\x0d\x97xxxx")),
		"RESPONSE-ORIGIN of family 3":           message(success, mapped, attr(0x802b, "\x00\x03\x0d\x97xxxx")),
		"the gateways' own attribute, 65 bytes": message(1, attr(0xfd57, strings.Repeat("x", 65))),
	} {
		if m, err := Parse([]byte(b)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: got %+v, %v, want ErrMalformed", name, m, err)
		}
	}
}

func TestRFC5780MessagesParseBack(t *testing.T) {
	for _, m := range []Message{
		{Class: Request, Change: ChangeAddress | ChangePort},
		{Class: Request, Username: "u", Probe: []byte("probe"), PadTo: 600},
		{Class: Success, Mapped: netip.MustParseAddrPort("203.0.113.9:51820"),
			Other: netip.MustParseAddrPort("192.0.2.2:3479"), Origin: netip.MustParseAddrPort("[2001:db8::1]:3478")},
	} {
		b, err := Encode(&m, []byte("key"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		if err := got.Verify([]byte("key")); err != nil {
			t.Error(err)
		}
		if got.Change != m.Change || got.Other != m.Other || got.Origin != m.Origin || !bytes.Equal(got.Probe, m.Probe) {
			t.Errorf("got %+v, want %+v", got, m)
		}
	}
	b, err := ChangeRequest(vectorTxID, ChangePort)
	if err != nil {
		t.Fatal(err)
	}
	if m, err := Parse(b); err != nil || m.Change != ChangePort || m.Class != Request || m.TxID != vectorTxID {
		t.Errorf("got %+v, %v, want a request to change the port", m, err)
	}
}

func TestPaddingReachesTheSizeAskedFor(t *testing.T) {
	const bare = HeaderSize + 12 + 24 // header, USERNAME, MESSAGE-INTEGRITY
	for _, c := range []struct{ padTo, plain int }{
		{0, bare}, {1, bare}, {bare, bare}, {bare + 1, bare + 4}, {bare + 4, bare + 4}, {bare + 5, bare + 8},
		{1200, 1200}, {1201, 1204}, {MaxSize - 3, MaxSize}, {MaxSize, MaxSize},
	} {
		for _, fingerprint := range []bool{false, true} {
			m := Message{Class: Request, Username: "username", PadTo: c.padTo, NoFingerprint: !fingerprint}
			b, err := Encode(&m, []byte("key"))
			if err != nil {
				t.Fatal(err)
			}
			want := c.plain
			if fingerprint {
				want = max(bare+8, (c.padTo+3)/4*4)
			}
			if len(b) != want {
				t.Errorf("padded to %d, FINGERPRINT %v: %d bytes, want %d", c.padTo, fingerprint, len(b), want)
			}
			if p, err := Parse(b); err != nil || p.Verify([]byte("key")) != nil {
				t.Errorf("padded to %d: %+v, %v", c.padTo, p, err)
			}
		}
	}
	if b, err := Encode(&Message{Class: Request, PadTo: MaxSize + 1}, nil); err == nil {
		t.Errorf("more than MaxSize: got %d bytes, want an error", len(b))
	}
}

func TestEncodeRefusesExtensionsThatAreNone(t *testing.T) {
	for name, m := range map[string]Message{
		"change of bit 0":            {Class: Request, Change: 1},
		"probe attribute, too large": {Class: Request, Probe: make([]byte, 65)},
	} {
		if b, err := Encode(&m, nil); err == nil {
			t.Errorf("%s: got % x, want an error", name, b)
		}
	}
}

func TestPeekAgreesWithParse(t *testing.T) {
	request := message(1, attr(0x0006, "username"), attr(0xfd57, "probe"))
	if u, ok := PeekRequest([]byte(request)); !ok || string(u) != "username" {
		t.Errorf("got %q, %v, want the user name", u, ok)
	}
	if tx, ok := PeekSuccess([]byte(vectorResponse4)); !ok || tx != vectorTxID {
		t.Errorf("got %x, %v, want the transaction", tx, ok)
	}
	for name, b := range map[string]string{
		"nothing":                       "",
		"no attribute":                  message(1),
		"another attribute first":       vectorRequest,
		"a user name longer than all":   message(1, "\x00\x06\x01\x00abcd"),
		"half an attribute header":      message(1, "\x00\x06"),
		"a response":                    message(0x0101, attr(0x0006, "username")),
		"another method":                message(3, attr(0x0006, "username")),
		"another cookie":                strings.Replace(request, "\x21\x12\xa4\x42", "\x21\x12\xa4\x43", 1),
		"a trailing byte":               request + "\x00",
		"the last byte missing":         request[:len(request)-1],
		"a header without what follows": request[:HeaderSize],
	} {
		if u, ok := PeekRequest([]byte(b)); ok {
			t.Errorf("%s: peeked at %q", name, u)
		}
		if tx, ok := PeekSuccess([]byte(b)); ok && name != "a response" {
			t.Errorf("%s: peeked at %x", name, tx)
		}
	}
	b, c := []byte(request), []byte(vectorResponse4)
	if n := testing.AllocsPerRun(100, func() { PeekRequest(b); PeekSuccess(c); PeekRequest(c); PeekSuccess(b) }); n != 0 {
		t.Errorf("peeking allocates %v times", n)
	}
}

func FuzzPeek(f *testing.F) {
	for _, s := range []string{vectorRequest, vectorResponse4, message(1, attr(0x0006, "username")), ""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		u, isRequest := PeekRequest(b)
		tx, isSuccess := PeekSuccess(b)
		m, err := Parse(b)
		if err != nil {
			return
		}
		if isRequest && (m.Class != Request || m.Username != string(u)) {
			t.Fatalf("peeked at user name %q of %+v", u, m)
		}
		if isSuccess != (m.Class == Success) || isSuccess && tx != m.TxID {
			t.Fatalf("peeked at transaction %x, %v of %+v", tx, isSuccess, m)
		}
	})
}
