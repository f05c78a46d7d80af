// Package ticket enrols a peer with a text that one operator gives to another. It defines the
// format, the keys derived from it, and the inviter's book of open tickets.
//
// # Format
//
// A ticket is "postern1" followed by base32 (RFC 4648 §6, lower case, no padding) of
//
//	version   1 byte   major in the high four bits, minor in the low four: 0x10 for a
//	                   ticket, 0x11 for a reply
//	kind      1 byte   1 ticket, 2 reply
//	length    2 bytes  of the whole, including the checksum
//	body               see below
//	checksum  4 bytes  first four of SHA-256 over everything before
//
// Integers are big-endian. These five fields are the same in every version, so that a damaged
// text can be distinguished from a newer one. White space is ignored everywhere and letters may
// be of either case, because tickets are pasted from chats and mails.
//
// A ticket's body:
//
//	seed        32 bytes
//	inviter     32 bytes  public key
//	expires      4 bytes  seconds since 1970, unsigned (until 2106)
//	flags        1 byte   bit 0: the inviter approves the joiner's key by hand
//	name         text     the inviter's name
//	services     list     what the joiner may reach at the inviter
//	candidates   list     where the inviter may be reached
//
// A reply's body:
//
//	ticket       8 bytes  id of the ticket that it answers
//	joiner      32 bytes  public key
//	name         text     the joiner's name
//	wants        list     requested services; none: all that the ticket grants
//	grants       list     services that the inviter may reach at the joiner
//	candidates   list     where the joiner may be reached
//	proof       32 bytes  that the joiner holds its key, see [Request.Prove]; since 1.1
//	mac         16 bytes  first half of HMAC-SHA256 over all before, header included
//
// A text is a length byte and as many bytes; a list is a count byte and its elements. A service
// is the byte 1 (auth), 2 (apiServer), or 0 and a text. A candidate is a byte (bit 7: IPv6; the
// rest its source, see sources), the address's 4 or 16 bytes, and the port's 2. A later minor
// version appends to the body (in a reply, before the mac); readers ignore unknown parts.
//
// # Keys
//
// All keys are derived from the seed by HKDF-SHA256 (RFC 5869, no salt); see [Keys].
//
// A ticket is a secret: its holder can redeem it, once. [Ticket] and [Reply] print as
// placeholders. The inviter stores the derived keys that it needs, but never the seed.
package ticket

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	// Prefix begins every ticket and every reply.
	Prefix = "postern1"
	// MaxCandidates bounds the candidates in one text; better ones come first.
	MaxCandidates = 16
	// MaxServices bounds the services in one list.
	MaxServices = 32
)

// Candidate is an underlay address at which a gateway may be reached.
type Candidate struct {
	Addr netip.AddrPort
	// Source is one of api's Source constants, or empty if unknown.
	Source string
}

// Seed is the secret from which all keys of a ticket are derived. It redacts itself.
type Seed struct{ b [32]byte }

// NewSeed returns a random seed.
func NewSeed() (Seed, error) {
	var s Seed
	if _, err := rand.Read(s.b[:]); err != nil {
		return Seed{}, fmt.Errorf("make ticket seed: %w", err)
	}
	return s, nil
}

// SeedFromBytes returns a seed with the given bytes.
func SeedFromBytes(b [32]byte) Seed { return Seed{b} }

// Format makes every fmt verb print a placeholder.
func (s Seed) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(hidden)) }

// LogValue makes slog print a placeholder.
func (s Seed) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalText makes JSON and YAML encode a placeholder.
func (s Seed) MarshalText() ([]byte, error) { return []byte(hidden), nil }

const hidden = "(hidden)"

// Ticket is a one-time invitation. It is a secret and prints as a placeholder; only
// [Ticket.Encode] reveals it.
type Ticket struct {
	Seed Seed
	// Inviter is the public key of the gateway that issued the ticket.
	Inviter peer.PublicKey
	// Name is the inviter's name.
	Name string
	// Expires is the inviter's deadline, by its clock, in whole seconds.
	Expires time.Time
	// Allow lists the services that the joiner may reach at the inviter.
	Allow []string
	// Approve: the inviter's operator has to confirm the joiner's key.
	Approve bool
	// Candidates are the inviter's addresses, best first.
	Candidates []Candidate
}

// Check returns an error if the ticket has expired by the given clock. The inviter decides by its
// own clock; a joiner's check only avoids a useless attempt.
func (t Ticket) Check(now time.Time) error {
	if !now.Before(t.Expires) {
		return &ExpiredError{At: t.Expires, Here: now}
	}
	return nil
}

// String returns a placeholder with the public part.
func (t Ticket) String() string { return fmt.Sprintf("(ticket of %s, hidden)", t.Name) }

// Format makes every fmt verb print the placeholder.
func (t Ticket) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(t.String())) }

// LogValue makes slog print the placeholder.
func (t Ticket) LogValue() slog.Value { return slog.StringValue(t.String()) }

// MarshalText makes JSON and YAML encode the placeholder.
func (t Ticket) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// Request is a joiner's request, sent in-band or in a reply.
type Request struct {
	// PublicKey is the joiner's own, permanent key.
	PublicKey peer.PublicKey
	// Name is the joiner's own name.
	Name string
	// Wants are the requested services; none means all that the ticket grants.
	Wants []string
	// Grants are the services that the inviter may reach at the joiner.
	Grants []string
	// Candidates are the joiner's addresses.
	Candidates []Candidate
	// Proof is the result of [Request.Prove]; empty from an older joiner.
	Proof []byte
}

// check returns what makes the request invalid for any ticket.
func (r Request) check() error {
	if r.PublicKey.IsZero() {
		return fmt.Errorf("%w: no public key", ErrRequest)
	}
	if err := api.CheckName(r.Name); err != nil {
		return fmt.Errorf("%w: %w", ErrName, err)
	}
	for _, list := range [][]string{r.Wants, r.Grants} {
		if err := checkServices(list); err != nil {
			return fmt.Errorf("%w: %w", ErrRequest, err)
		}
	}
	if err := checkCandidates(r.Candidates); err != nil {
		return fmt.Errorf("%w: %w", ErrRequest, err)
	}
	if n := len(r.Proof); n != 0 && n != proofSize {
		return fmt.Errorf("%w: a proof of %d bytes, want %d", ErrRequest, n, proofSize)
	}
	return nil
}

// checkServices returns an error for a list that is too long or has an invalid service name.
func checkServices(names []string) error {
	if len(names) > MaxServices {
		return fmt.Errorf("%d services, at most %d", len(names), MaxServices)
	}
	for _, name := range names {
		if name == api.ServiceAuth || name == api.ServiceAPIServer {
			continue
		}
		if err := api.CheckName(name); err != nil {
			return fmt.Errorf("service: %w", err)
		}
	}
	return nil
}

// checkCandidates returns an error for addresses that cannot be dialled. Whether a valid one
// should be dialled (loopback, own ranges) is decided by the dialling code.
func checkCandidates(list []Candidate) error {
	if len(list) > MaxCandidates {
		return fmt.Errorf("%d candidates, at most %d", len(list), MaxCandidates)
	}
	for _, c := range list {
		if err := checkAddr(c.Addr); err != nil {
			return fmt.Errorf("candidate %s: %w", c.Addr, err)
		}
	}
	return nil
}

func checkAddr(a netip.AddrPort) error {
	ip := a.Addr()
	switch {
	case !ip.IsValid() || ip.IsUnspecified():
		return fmt.Errorf("no address")
	case a.Port() == 0:
		return fmt.Errorf("no port")
	case ip.Zone() != "":
		return fmt.Errorf("the zone %q means nothing elsewhere", ip.Zone())
	case ip.IsMulticast() || ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return fmt.Errorf("not an address of one host")
	}
	return nil
}
