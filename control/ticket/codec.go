package ticket

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	flagApprove = 1

	serviceNamed     = 0
	serviceAuth      = 1
	serviceAPIServer = 2

	candidateIPv6 = 0x80

	macSize = 16
)

// sources numbers the sources of candidates; 0 means unknown.
var sources = [...]string{
	0: "", 1: api.SourceAdvertised, 2: api.SourceService, 3: api.SourcePortmap, 4: api.SourceLAN,
	5: api.SourceDNS, 6: api.SourceHost, 7: api.SourceSTUN, 8: api.SourcePeer, 9: api.SourceRelay,
}

// KnownSource returns a candidate's source if it can be encoded, else "".
func KnownSource(s string) string {
	if slices.Contains(sources[:], s) {
		return s
	}
	return ""
}

// Encode returns the ticket as text: a secret.
func (t Ticket) Encode() (string, error) {
	expires := t.Expires.Unix()
	if expires < 0 || expires > math.MaxUint32 {
		return "", fmt.Errorf("encode ticket: a deadline of %s cannot be written", t.Expires.UTC().Format(time.RFC3339))
	}
	if err := api.CheckName(t.Name); err != nil {
		return "", fmt.Errorf("encode ticket: %w", err)
	}
	if t.Inviter.IsZero() {
		return "", errors.New("encode ticket: no public key")
	}
	b := append([]byte(nil), t.Seed.b[:]...)
	b = append(b, t.Inviter[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(expires))
	var flags byte
	if t.Approve {
		flags |= flagApprove
	}
	b = append(b, flags)
	b = appendText(b, t.Name)
	b, err := appendLists(b, [][]string{t.Allow}, t.Candidates)
	if err != nil {
		return "", fmt.Errorf("encode ticket: %w", err)
	}
	return seal(kindTicket, b)
}

// Decode parses a ticket. It does not check the expiry: see [Ticket.Check].
func Decode(text string) (Ticket, error) {
	f, err := open(text)
	if err != nil {
		return Ticket{}, err
	}
	if f.kind == kindReply {
		return Ticket{}, ErrIsReply
	}
	if f.kind != kindTicket {
		return Ticket{}, fmt.Errorf("%w (it is of kind %d)", ErrNewerVersion, f.kind)
	}
	r := reader{b: f.body(), newer: f.minor > minorTicket}
	var t Ticket
	copy(t.Seed.b[:], r.take(len(t.Seed.b)))
	copy(t.Inviter[:], r.take(len(t.Inviter)))
	if e := r.take(4); e != nil {
		t.Expires = time.Unix(int64(binary.BigEndian.Uint32(e)), 0)
	}
	flags := r.byte()
	t.Approve = flags&flagApprove != 0
	if flags&^flagApprove != 0 && !r.newer {
		r.fail("unknown flag")
	}
	t.Name = r.name()
	t.Allow = r.services()
	t.Candidates = r.candidates()
	if t.Inviter.IsZero() {
		r.fail("no public key")
	}
	if err := r.end(); err != nil {
		return Ticket{}, err
	}
	return t, nil
}

// Reply is a joiner's answer to a ticket whose issuer it cannot reach: the issuer must dial. It
// prints as a placeholder.
type Reply struct {
	// Ticket is the id of the ticket that it answers.
	Ticket ID
	Request

	// What the mac is over, and the mac; set by DecodeReply.
	covered []byte
	mac     [macSize]byte
}

// Format makes every fmt verb print a placeholder.
func (r Reply) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "(reply of %s to ticket %s)", r.Name, r.Ticket)
}

// LogValue makes slog print a placeholder.
func (r Reply) LogValue() slog.Value {
	return slog.StringValue(fmt.Sprintf("(reply of %s to ticket %s)", r.Name, r.Ticket))
}

// EncodeReply encodes a joiner's reply to the ticket of k. Without a proof it has the old format,
// which no inviter accepts.
func EncodeReply(k Keys, q Request) (string, error) {
	if err := q.check(); err != nil {
		return "", fmt.Errorf("encode reply: %w", err)
	}
	b, err := q.append(append([]byte(nil), k.ID[:]...))
	if err != nil {
		return "", fmt.Errorf("encode reply: %w", err)
	}
	var minor byte
	if len(q.Proof) > 0 {
		b, minor = append(b, q.Proof...), minorReply
	}
	h, err := header(minor, kindReply, len(b)+macSize)
	if err != nil {
		return "", fmt.Errorf("encode reply: %w", err)
	}
	covered := append(h, b...)
	mac := replyMAC(k.Reply, covered)
	return armour(append(covered, mac[:]...)), nil
}

// DecodeReply parses a reply. Only the book can tell whether it is authentic.
func DecodeReply(text string) (Reply, error) {
	f, err := open(text)
	if err != nil {
		return Reply{}, err
	}
	if f.kind == kindTicket {
		return Reply{}, ErrIsTicket
	}
	if f.kind != kindReply {
		return Reply{}, fmt.Errorf("%w (it is of kind %d)", ErrNewerVersion, f.kind)
	}
	n := len(f.covered) - macSize
	if n < headerSize {
		return Reply{}, fmt.Errorf("%w (no signature)", ErrDamaged)
	}
	reply := Reply{covered: f.covered[:n], mac: [macSize]byte(f.covered[n:])}
	r := reader{b: f.covered[headerSize:n], newer: f.minor > minorReply}
	copy(reply.Ticket[:], r.take(IDSize))
	copy(reply.PublicKey[:], r.take(peer.KeySize))
	reply.Name = r.name()
	reply.Wants = r.services()
	reply.Grants = r.services()
	reply.Candidates = r.candidates()
	if f.minor > 0 {
		reply.Proof = slices.Clone(r.take(proofSize))
	}
	if reply.PublicKey.IsZero() {
		r.fail("no public key")
	}
	if err := r.end(); err != nil {
		return Reply{}, err
	}
	return reply, nil
}

// authentic reports whether the reply was made with the ticket of k.
func (r Reply) authentic(k Key) bool {
	want := replyMAC(k, r.covered)
	return hmac.Equal(want[:], r.mac[:])
}

func replyMAC(k Key, covered []byte) [macSize]byte {
	h := hmac.New(sha256.New, k.b[:])
	h.Write(covered)
	return [macSize]byte(h.Sum(nil)[:macSize])
}

func appendText(b []byte, s string) []byte { return append(append(b, byte(len(s))), s...) }

// appendLists appends lists of services and then the candidates.
func appendLists(b []byte, services [][]string, candidates []Candidate) ([]byte, error) {
	for _, list := range services {
		if err := checkServices(list); err != nil {
			return nil, err
		}
		b = append(b, byte(len(list)))
		for _, s := range list {
			switch s {
			case api.ServiceAuth:
				b = append(b, serviceAuth)
			case api.ServiceAPIServer:
				b = append(b, serviceAPIServer)
			default:
				b = appendText(append(b, serviceNamed), s)
			}
		}
	}
	if err := checkCandidates(candidates); err != nil {
		return nil, err
	}
	b = append(b, byte(len(candidates)))
	for _, c := range candidates {
		var head byte
		for code, name := range sources {
			if name == c.Source {
				head = byte(code)
			}
		}
		ip := c.Addr.Addr().Unmap()
		if ip.Is6() {
			head |= candidateIPv6
		}
		b = append(append(b, head), ip.AsSlice()...)
		b = binary.BigEndian.AppendUint16(b, c.Addr.Port())
	}
	return b, nil
}

// reader reads a body. It keeps the first failure; later reads return zero values.
type reader struct {
	b     []byte
	newer bool // of a later minor version: unknown parts are ignored
	err   error
}

func (r *reader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w (%s)", ErrDamaged, what)
	}
}

// take returns the next n bytes, or nil.
func (r *reader) take(n int) []byte {
	if r.err != nil || len(r.b) < n {
		r.fail("its contents end early")
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) name() string {
	s := string(r.take(int(r.byte())))
	if r.err == nil {
		if err := api.CheckName(s); err != nil {
			r.fail(err.Error())
		}
	}
	return s
}

func (r *reader) services() []string {
	n := int(r.byte())
	if n > MaxServices {
		r.fail("too many services")
	}
	var list []string
	for range n {
		if r.err != nil {
			return nil
		}
		switch code := r.byte(); code {
		case serviceAuth:
			list = append(list, api.ServiceAuth)
		case serviceAPIServer:
			list = append(list, api.ServiceAPIServer)
		case serviceNamed:
			list = append(list, r.name())
		default:
			r.fail("unknown service")
		}
	}
	return list
}

func (r *reader) candidates() []Candidate {
	n := int(r.byte())
	if n > MaxCandidates {
		r.fail("too many candidates")
	}
	var list []Candidate
	for range n {
		if r.err != nil {
			return nil
		}
		list = append(list, r.candidate())
	}
	return list
}

func (r *reader) candidate() Candidate {
	head := r.byte()
	size := 4
	if head&candidateIPv6 != 0 {
		size = 16
	}
	ip, _ := netip.AddrFromSlice(r.take(size))
	port := r.take(2)
	if r.err != nil {
		return Candidate{}
	}
	c := Candidate{Addr: netip.AddrPortFrom(ip, binary.BigEndian.Uint16(port))}
	if err := checkAddr(c.Addr); err != nil {
		r.fail("candidate: " + err.Error())
	}
	if ip.Is4In6() {
		r.fail("an IPv4 candidate in IPv6 clothing")
	}
	source := int(head &^ candidateIPv6)
	switch {
	case source < len(sources):
		c.Source = sources[source]
	case !r.newer:
		r.fail("unknown source of a candidate")
	}
	return c
}

// end returns the first failure, or an error if there are bytes that this version does not know.
func (r *reader) end() error {
	if r.err == nil && len(r.b) > 0 && !r.newer {
		r.fail("more than it should hold")
	}
	return r.err
}
