package ticket

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tunnel/peer"
)

// reseal changes the bytes of a text and recomputes the checksum.
func reseal(t testing.TB, text string, change func([]byte) []byte) string {
	t.Helper()
	b, err := encoding.DecodeString(strings.TrimPrefix(text, Prefix))
	if err != nil {
		t.Fatal(err)
	}
	b = change(b[:len(b)-checksumSize])
	total := len(b) + checksumSize
	b[2], b[3] = byte(total>>8), byte(total)
	return armour(b)
}

func set(i int, v byte) func([]byte) []byte {
	return func(b []byte) []byte { b[i] = v; return b }
}

func TestDecodeTellsApartWhatIsWrong(t *testing.T) {
	v := vectors(t)[0]
	good := v.Ticket
	const flagsAt = headerSize + 32 + 32 + 4
	for _, c := range []struct {
		name, text string
		want       error
	}{
		{"empty", "", ErrNotTicket},
		{"a password", "hunter2", ErrNotTicket},
		{"a WireGuard key", v.Inviter.String(), ErrNotTicket},
		{"another's ticket", "liqo1" + good[len(Prefix):], ErrNotTicket},
		{"a novel", strings.Repeat("postern1", 10_000), ErrNotTicket},
		{"only the beginning", "poster", ErrTruncated},
		{"only the prefix", "postern1", ErrTruncated},
		{"half a header", good[:len(Prefix)+3], ErrTruncated},
		{"half", good[:len(good)/2], ErrTruncated},
		{"one character short", good[:len(good)-1], ErrTruncated},
		{"two characters short", good[:len(good)-2], ErrTruncated},
		{"one character more", good + "a", ErrDamaged},
		{"eight characters more", good + "aaaaaaaa", ErrDamaged},
		{"a character changed", swapAt(good, 60), ErrDamaged},
		{"the last character changed", swapAt(good, len(good)-1), ErrDamaged},
		{"two characters exchanged", good[:40] + good[41:42] + good[40:41] + good[42:], ErrDamaged},
		{"a foreign character", good[:40] + "0" + good[41:], ErrDamaged},
		{"a character that is not ASCII", good[:40] + "é" + good[41:], ErrDamaged},
		{"the next major version", reseal(t, good, set(0, 0x20)), ErrNewerVersion},
		{"another prefix of ours", "postern2" + good[len(Prefix):], ErrNewerVersion},
		{"an unknown kind", reseal(t, good, set(1, 9)), ErrNewerVersion},
		{"a reply", v.Reply.Text, ErrIsReply},
		{"more than it should hold", reseal(t, good, func(b []byte) []byte { return append(b, 7) }), ErrDamaged},
		{"less than it should hold", reseal(t, good, func(b []byte) []byte { return b[:len(b)-1] }), ErrDamaged},
		{"nothing in it", reseal(t, good, func(b []byte) []byte { return b[:headerSize] }), ErrDamaged},
		{"an unknown flag", reseal(t, good, set(flagsAt, 0x80)), ErrDamaged},
		{"a name that is none", reseal(t, good, set(flagsAt+2, '\n')), ErrDamaged},
		{"no public key", reseal(t, good, func(b []byte) []byte { clear(b[headerSize+32 : headerSize+64]); return b }), ErrDamaged},
		{"a candidate without port", reseal(t, good, func(b []byte) []byte { clear(b[len(b)-2:]); return b }), ErrDamaged},
		{"a candidate of unknown source", reseal(t, good, set(flagsAt+1+6+3+1, 0x7f)), ErrDamaged},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Decode(c.text)
			if !errors.Is(err, c.want) {
				t.Errorf("Decode: got %v, %v; want error %q", got, err, c.want)
			}
			for _, other := range []error{ErrNotTicket, ErrTruncated, ErrDamaged, ErrNewerVersion, ErrIsReply, ErrIsTicket} {
				if !errors.Is(c.want, other) && errors.Is(err, other) {
					t.Errorf("the error is also %q", other)
				}
			}
		})
	}
	if _, err := DecodeReply(good); !errors.Is(err, ErrIsTicket) {
		t.Errorf("DecodeReply of a ticket: got %v, want %v", err, ErrIsTicket)
	}
}

// swapAt replaces the i-th character by another of the alphabet.
func swapAt(s string, i int) string {
	c := byte('a')
	if s[i] == 'a' {
		c = 'q'
	}
	return s[:i] + string(c) + s[i+1:]
}

func TestEveryChangedCharacterIsNoticed(t *testing.T) {
	for _, v := range vectors(t) {
		for _, text := range []string{v.Ticket, v.Reply.Text} {
			for i := len(Prefix); i < len(text); i++ {
				if _, err := open(swapAt(text, i)); !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrTruncated) {
					t.Errorf("character %d changed: got %v", i, err)
				}
			}
			for i := range len(text) {
				if _, err := open(text[:i]); err == nil {
					t.Errorf("cut to %d characters: no error", i)
				}
			}
		}
	}
}

func TestDecodeForgivesWhatPastingDoes(t *testing.T) {
	v := vectors(t)[0]
	for name, text := range map[string]string{
		"white space around": " \t" + v.Ticket + "\r\n",
		"wrapped lines":      v.Ticket[:50] + "\n  " + v.Ticket[50:100] + "\n  " + v.Ticket[100:],
		"upper case":         strings.ToUpper(v.Ticket),
		"quotes":             `"` + v.Ticket + `"`,
		"smart quotes":       "“" + v.Ticket + "”",
		"other quotes":       "„" + v.Ticket + "‘ «»",
		"a command":          "$ postern join " + v.Ticket + " --name cloud --wait 5s",
		"a command in prose": "Please run `postern join " + v.Ticket + "`.\nThanks, and see you on Monday",
		"quoted mail":        "> postern join\n> " + v.Ticket[:64] + "\n> " + v.Ticket[64:] + "\n> bye",
		"a broken command":   "postern join " + v.Ticket[:64] + "\\\n    " + v.Ticket[64:],
		"soft line breaks":   v.Ticket[:70] + "=\r\n" + v.Ticket[70:],
		"what nobody sees":   "\ufeff" + v.Ticket + "\u200b",
		"unseen breaks":      v.Ticket[:40] + "\u00ad" + v.Ticket[40:70] + "\u200b\n" + v.Ticket[70:],
		"a sentence":         "The ticket is " + v.Ticket + ", good for an hour.",
		"an old one before":  v.Reply.Text + "\n" + v.Ticket,
	} {
		got, err := Decode(text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(v.ticket(t), got, same); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestANewerMinorVersionIsRead(t *testing.T) {
	v := vectors(t)[0]
	newer := reseal(t, v.Ticket, func(b []byte) []byte {
		b[0] = major<<4 | 7
		return append(b, "something new"...)
	})
	got, err := Decode(newer)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(v.ticket(t), got, same); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestExpiryNamesTheTime(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	k := Ticket{Expires: at}
	if err := k.Check(at.Add(-time.Second)); err != nil {
		t.Errorf("a second early: %v", err)
	}
	err := k.Check(at)
	if !errors.Is(err, ErrExpired) || !strings.Contains(err.Error(), "expired at 2026-03-01T12:00:00Z, and the clock here shows 2026-03-01T12:00:00Z") {
		t.Errorf("at the deadline: got %v, want %v with the time", err, ErrExpired)
	}
}

func TestTicketsAreShortEnoughToPaste(t *testing.T) {
	k := Ticket{
		Inviter: peer.PublicKey{1}, Name: strings.Repeat("n", api.MaxNameLength), Expires: time.Unix(1<<32-1, 0),
		Allow: []string{api.ServiceAuth, api.ServiceAPIServer},
	}
	for range 3 {
		k.Candidates = append(k.Candidates, Candidate{Addr: netip.MustParseAddrPort("[2001:db8::1]:51820"), Source: api.SourceHost})
	}
	text, err := k.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if len(text) >= 300 {
		t.Errorf("the longest name and three IPv6 candidates make %d characters, want fewer than 300", len(text))
	}
}

func TestEncodeRefusesWhatCannotBeSaid(t *testing.T) {
	good := vectors(t)[0].ticket(t)
	for name, spoil := range map[string]func(*Ticket){
		"name":         func(k *Ticket) { k.Name = "Not A Label" },
		"key":          func(k *Ticket) { k.Inviter = peer.PublicKey{} },
		"before 1970":  func(k *Ticket) { k.Expires = time.Unix(-1, 0) },
		"after 2106":   func(k *Ticket) { k.Expires = time.Unix(1<<32, 0) },
		"service":      func(k *Ticket) { k.Allow = []string{"no service"} },
		"services":     func(k *Ticket) { k.Allow = make([]string, MaxServices+1) },
		"unspecified":  func(k *Ticket) { k.Candidates = []Candidate{{Addr: netip.MustParseAddrPort("0.0.0.0:1")}} },
		"multicast":    func(k *Ticket) { k.Candidates = []Candidate{{Addr: netip.MustParseAddrPort("224.0.0.1:1")}} },
		"broadcast":    func(k *Ticket) { k.Candidates = []Candidate{{Addr: netip.MustParseAddrPort("255.255.255.255:1")}} },
		"zone":         func(k *Ticket) { k.Candidates = []Candidate{{Addr: netip.MustParseAddrPort("[fe80::1%eth0]:1")}} },
		"no port":      func(k *Ticket) { k.Candidates = []Candidate{{Addr: netip.MustParseAddrPort("192.0.2.1:0")}} },
		"too many":     func(k *Ticket) { k.Candidates = make([]Candidate, MaxCandidates+1) },
		"no candidate": func(k *Ticket) { k.Candidates = make([]Candidate, 1) },
	} {
		k := good
		spoil(&k)
		if text, err := k.Encode(); err == nil {
			t.Errorf("%s: encoded as %s", name, text)
		}
	}
}

func TestSecretsPrintNowhere(t *testing.T) {
	v := vectors(t)[0]
	k := v.ticket(t)
	keys, err := k.Keys()
	if err != nil {
		t.Fatal(err)
	}
	reply, err := DecodeReply(v.Reply.Text)
	if err != nil {
		t.Fatal(err)
	}
	record := Record{ID: keys.ID, Tunnel: keys.Tunnel, Reply: keys.Reply, Peer: keys.Peer, By: Redeemer{PresharedKey: keys.Tunnel}}
	grant := Grant{PresharedKey: keys.Tunnel}
	all := []any{k, &k, k.Seed, keys, &keys, keys.Reply, reply, &reply, record, &record, Records{List: []Record{record}}, grant, struct{ T Ticket }{k}}
	var out strings.Builder
	log := slog.New(slog.NewJSONHandler(&out, nil))
	for _, x := range all {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
			fmt.Fprintf(&out, verb, x)
		}
		log.Info("x", "value", x)
		if err := json.NewEncoder(&out).Encode(x); err != nil {
			t.Fatal(err)
		}
	}
	for _, secret := range []string{
		v.Ticket, v.Seed, strings.ToUpper(v.Seed), "0 1 2 3 4 5", "0x0, 0x1, 0x2",
		v.Keys.OneTimePrivate, v.Keys.Tunnel, v.Keys.Reply, v.Keys.Peer, keys.Tunnel.Hex(), keys.OneTime.Hex(),
	} {
		if strings.Contains(out.String(), secret) {
			t.Errorf("a secret was printed: %q", secret)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, v := range vectors(f) {
		f.Add(v.Ticket)
		f.Add(v.Reply.Text)
		f.Add(v.Reply.Former)
	}
	f.Add("postern1")
	f.Add("postern2aaaa")
	f.Fuzz(func(t *testing.T, text string) {
		if k, err := Decode(text); err == nil {
			again, err := k.Encode()
			if err != nil {
				t.Fatalf("what was decoded cannot be encoded: %v", err)
			}
			if second, err := Decode(again); err != nil || !cmp.Equal(k, second, same) {
				t.Fatalf("decoding, encoding and decoding gives %v, %v", second, err)
			}
		}
		if r, err := DecodeReply(text); err == nil {
			if _, err := EncodeReply(Keys{ID: r.Ticket}, r.Request); err != nil {
				t.Fatalf("what was decoded cannot be encoded: %v", err)
			}
		}
	})
}

// FuzzBody gets past the checksum, which random text practically never does.
func FuzzBody(f *testing.F) {
	for _, v := range vectors(f) {
		for _, text := range []string{v.Ticket, v.Reply.Text} {
			opened, err := open(text)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(opened.minor, opened.kind, opened.body())
			f.Add(opened.minor^1, opened.kind, opened.body())
		}
	}
	f.Fuzz(func(t *testing.T, minor, kind byte, body []byte) {
		if len(body) > 8<<10 {
			return
		}
		text, err := seal(kind, body)
		if err != nil {
			t.Fatal(err)
		}
		text = reseal(t, text, set(0, major<<4|minor&15))
		if k, err := Decode(text); err == nil {
			if again, err := k.Encode(); err != nil || minor&15 == 0 && again != text {
				t.Fatalf("encoding what was decoded gives %s, %v; want %s", again, err, text)
			}
		}
		if r, err := DecodeReply(text); err == nil {
			if _, err := EncodeReply(Keys{ID: r.Ticket}, r.Request); err != nil {
				t.Fatalf("what was decoded cannot be encoded: %v", err)
			}
		}
	})
}
