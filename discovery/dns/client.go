package dnssd

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/miekg/dns"
)

const (
	// udpSize is the largest UDP answer that we ask for. It fits every path that carries IPv6
	// (1280 bytes less headers), so answers do not arrive in fragments.
	udpSize = 1232
	// serverWait is how long to wait for a server over UDP, streamWait over TCP.
	serverWait = 2 * time.Second
	streamWait = 4 * time.Second
	// rounds is how often all servers are queried before a question counts as unanswered.
	rounds = 2
)

// client queries DNS servers. It is safe for concurrent use.
type client struct {
	servers func() ([]netip.AddrPort, error)
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	health  health
}

// ask sends a question to one server after another until one answers. It takes at most 2 s per
// server and round, and 4 s more for a long answer.
func (c *client) ask(ctx context.Context, q question) (answer, error) {
	servers, err := c.servers()
	if err != nil {
		return answer{}, err
	}
	failed := map[netip.AddrPort]error{}
	for range rounds {
		for _, s := range c.health.arrange(time.Now(), servers) {
			a, err := c.askServer(ctx, s, q)
			if err == nil || errors.As(err, new(aliasError)) || errors.Is(err, errBogus) {
				return a, err
			}
			if ctx.Err() != nil {
				return answer{}, context.Cause(ctx)
			}
			failed[s] = err
		}
		if !worthwhile(failed) {
			break
		}
	}
	return answer{}, unanswered(servers, failed)
}

// worthwhile reports whether another round may help: not if every server has refused.
func worthwhile(failed map[netip.AddrPort]error) bool {
	for _, err := range failed {
		if !errors.As(err, new(serverError)) {
			return true
		}
	}
	return false
}

// unanswered describes why no server answered.
func unanswered(servers []netip.AddrPort, failed map[netip.AddrPort]error) error {
	var parts []string
	for _, s := range servers {
		if err := failed[s]; err != nil {
			parts = append(parts, fmt.Sprintf("the DNS server %s %v", serverText(s), err))
		}
	}
	return errors.New(strings.Join(parts, "; "))
}

func serverText(s netip.AddrPort) string {
	if s.Port() == dnsPort {
		return s.Addr().String()
	}
	return s.String()
}

// askServer queries one server. A failed validation is distinguished from other failures by a
// query without validation (RFC 4035 §3.2.2, the CD bit).
func (c *client) askServer(ctx context.Context, s netip.AddrPort, q question) (answer, error) {
	a, err := c.exchange(ctx, s, q, true, false)
	if e, ok := errors.AsType[serverError](err); ok && (e.rcode == dns.RcodeFormatError || e.rcode == dns.RcodeNotImplemented) {
		a, err = c.exchange(ctx, s, q, false, false) // a server from before EDNS0 (RFC 6891 §7)
	}
	if isServfail(err) {
		if _, unchecked := c.exchange(ctx, s, q, true, true); unchecked == nil {
			return answer{}, fmt.Errorf("%w: the DNS server %s %w, and gives the records when it is told not to validate", errBogus, serverText(s), err)
		}
	}
	a.from = s
	return a, err
}

// exchange sends one question, over TCP if the UDP answer is truncated.
func (c *client) exchange(ctx context.Context, s netip.AddrPort, q question, edns, unchecked bool) (answer, error) {
	m := new(dns.Msg)
	m.SetQuestion(q.name, q.rtype)
	m.AuthenticatedData, m.CheckingDisabled = true, unchecked
	if edns {
		m.SetEdns0(udpSize, false)
	}
	packet, err := m.Pack()
	if err != nil {
		return answer{}, fmt.Errorf("cannot be asked: %w", err)
	}
	r, err := c.over(ctx, "udp", serverWait, s, func(conn net.Conn) (*dns.Msg, error) { return datagram(conn, packet, m.Id, q) })
	if err == nil && r.Truncated {
		r, err = c.over(ctx, "tcp", streamWait, s, func(conn net.Conn) (*dns.Msg, error) { return stream(conn, packet, m.Id, q) })
		if err != nil {
			err = fmt.Errorf("has more to say than fits a datagram, and by TCP %w", err)
		}
	}
	if err != nil {
		if ctx.Err() == nil {
			c.health.silent(time.Now(), s)
		}
		return answer{}, err
	}
	c.health.answers(s)
	return read(r, q)
}

// over talks to a server on a new connection: one question per port.
func (c *client) over(ctx context.Context, network string, wait time.Duration, s netip.AddrPort, talk func(net.Conn) (*dns.Msg, error)) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	conn, err := c.dial(ctx, network, s.String())
	if err != nil {
		return nil, reason(err, wait)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	m, err := talk(conn)
	if err != nil {
		return nil, reason(err, wait)
	}
	return m, nil
}

// reason describes an error in words that follow the server's name.
func reason(err error, wait time.Duration) error {
	var op *net.OpError
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("does not answer within %v", wait)
	case errors.As(err, &op):
		return fmt.Errorf("cannot be reached: %w", op.Err)
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("hangs up")
	}
	return err
}

// datagram waits for the answer and ignores other packets, which may be someone's guesses.
func datagram(conn net.Conn, packet []byte, id uint16, q question) (*dns.Msg, error) {
	if _, err := conn.Write(packet); err != nil {
		return nil, err
	}
	buf := make([]byte, 64<<10) // servers may send more than they should
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return nil, err
		}
		if m, err := unpack(buf[:n], id, q); err == nil {
			return m, nil
		}
	}
}

// stream frames messages by their length (RFC 1035 §4.2.2).
func stream(conn net.Conn, packet []byte, id uint16, q question) (*dns.Msg, error) {
	if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(packet))), packet...)); err != nil {
		return nil, err
	}
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return nil, err
	}
	buf := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(conn, buf); err != nil {
		return nil, err
	}
	return unpack(buf, id, q)
}
