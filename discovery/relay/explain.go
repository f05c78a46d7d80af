package relay

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/postern-dev/postern/discovery/egress"
)

// Error codes of RFC 8489 §14.8 and RFC 8656 §19 that are handled.
const (
	codeTryAlternate  = 300
	codeUnauthorized  = 401
	codeForbidden     = 403
	codeMismatch      = 437
	codeStaleNonce    = 438
	codeWrongUser     = 441
	codeNoTransport   = 442
	codeQuota         = 486
	codeFull          = 508
	codeBadRequest    = 400
	codeFamily        = 440
	codeNoneInMessage = 0
)

// failure says why there is no allocation: what failed, why, and what to do.
type failure struct {
	words string
	// code is the server's error code; 0 = no answer.
	code int
	// silent says that the server did not answer at all over this transport.
	silent bool
	// refusal is words without the transport, if the server refuses over all transports; "" = it
	// does not.
	refusal string
	// certificate says that the server's certificate is unacceptable.
	certificate bool
}

// fault returns what has to be fixed.
func (f *failure) fault() Fault {
	switch {
	case f.certificate:
		return FaultCertificate
	case f.silent:
		return FaultSilent
	case slices.Contains([]int{codeBadRequest, codeUnauthorized, codeWrongUser}, f.code):
		return FaultCredentials
	}
	return FaultServer
}

func (f *failure) Error() string { return f.words }

// explainCode describes a rejected request.
func explainCode(m message, s Server, now time.Time) string {
	switch m.code {
	case codeTryAlternate:
		if m.alternate.IsValid() {
			return fmt.Sprintf("the server sends us elsewhere (300): set the relay's address to %v", m.alternate)
		}
		return "the server sends us elsewhere (300) and does not say where: ask its operator"
	case codeUnauthorized, codeWrongUser:
		if at, ok := Expiry(s.Username); ok && now.After(at) {
			return fmt.Sprintf("the credentials expired at %s (%d): get new ones, or check this machine's clock", at.UTC().Format(time.RFC3339), m.code)
		}
		return fmt.Sprintf("wrong username or password for user %q (%d): check them, and the server's realm", s.Username, m.code)
	case codeBadRequest:
		return fmt.Sprintf("bad request (400): some servers answer so when the username %q or its password is wrong: check them", s.Username)
	case codeForbidden:
		return "forbidden (403): the server does not serve this gateway's address or user: ask its operator"
	case codeMismatch:
		return "the server has another allocation from this address and port, not ours to end (437): wait up to 10 minutes for it to expire, or change the gateway's listen port"
	case codeStaleNonce:
		return "the server calls every nonce stale (438), fresh ones too: check its clock and stale-nonce setting"
	case codeFamily:
		return "the server relays neither IPv4 nor IPv6 (440): use another server"
	case codeNoTransport:
		return "the server relays no UDP (442): remove no-udp-relay (coturn) or use another server"
	case codeQuota:
		return fmt.Sprintf("user %q has as many allocations as the server grants (486): raise user-quota (coturn), give each gateway its own user, or wait 10 minutes for lost ones to expire", s.Username)
	case codeFull:
		return "the server has no relay ports left (508): raise max-port or total-quota (coturn), or use another server"
	case codeNoneInMessage:
		return "the server refuses and gives no reason: see its log"
	}
	return fmt.Sprintf("the server refuses with error %d: see its log", m.code)
}

// explainDenied describes a denied permission.
func explainDenied(code int, a netip.Addr, own bool) string {
	with := ""
	if code != codeNoneInMessage {
		with = fmt.Sprintf(" (%d)", code)
	}
	if own {
		return fmt.Sprintf("the server does not relay to its own address %v%s, so two gateways on it cannot meet by relayed addresses: add allowed-peer-ip=%v (coturn)", a, with, a)
	}
	return fmt.Sprintf("the server does not relay to %v%s: its denied-peer-ip covers it; add allowed-peer-ip=%v (coturn) if that is wanted", a, with, a)
}

// explainLoss describes a rejected refresh.
func explainLoss(m message, transport string, s Server, now time.Time) string {
	if m.code != codeMismatch {
		return "the server no longer wants the allocation: " + explainCode(m, s, now)
	}
	if transport == TransportUDP {
		return "the server does not know the allocation any more (437): it was restarted, or this gateway's NAT gave it another port; allocating again"
	}
	return "the server does not know the allocation any more (437): it was restarted; allocating again"
}

// explainSilence describes a server that does not answer.
func explainSilence(transport string, to place, sendErr error) string {
	if sendErr != nil {
		return fmt.Sprintf("cannot send to %v: %s", to, cause(sendErr))
	}
	if transport == TransportUDP {
		return fmt.Sprintf("no answer over UDP from %v: is UDP blocked on the way out, or the server down?", to)
	}
	return fmt.Sprintf("connected to %v over %s, but it does not answer: is that a TURN server?", to, transport)
}

// explainDial describes a failed connection.
func explainDial(transport string, to place, err error) string {
	var timeout net.Error
	var proxy *egress.Error
	switch {
	case errors.As(err, &proxy):
		return proxy.Error()
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Sprintf("%v refuses TCP: is the server up, and does it listen for %s there?", to, transport)
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Sprintf("no answer over TCP from %v: is the port blocked on the way out, or the server down?", to)
	}
	return fmt.Sprintf("connect to %v: %s", to, cause(err))
}

// cause returns the part of an error to append to a sentence that says what was tried, without the
// calls that it passed through.
func cause(err error) string {
	var late net.Error
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	if errors.As(err, &late) && late.Timeout() {
		return "no answer"
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return dns.Err
	}
	return err.Error()
}
