package clusterdns

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/time/rate"

	"github.com/postern-dev/postern/control/connlimit"
)

const (
	// sourceRate and sourceBurst are how many queries of one address, which may be that of a
	// cluster's DNS, are answered per second and in a row, and totalRate and totalBurst how many of
	// all, by UDP and by TCP each. If they ask for more, an equal part of as many again is each
	// address's own.
	sourceRate, sourceBurst = 2000, 1000
	totalRate, totalBurst   = 10000, 2000
	// maxSources is how many addresses are told apart. All others count as one.
	maxSources = 4096
	// Connections by TCP of one address, and of all. One more displaces the oldest one of the address
	// with most of them.
	sourceConns, totalConns = 32, 256
	// idleTimeout is how long a connection may be silent, and an answer may take to be sent.
	idleTimeout = 5 * time.Second
	// again is the pause after a failure of the socket that may pass.
	again = 100 * time.Millisecond
)

// Results of queries, besides the names of the response codes.
const (
	resultIgnored = "ignored" // no query
	resultLimited = "limited"
)

// counted are the response codes that there are.
var counted = []int{dns.RcodeSuccess, dns.RcodeFormatError, dns.RcodeServerFailure, dns.RcodeNameError, dns.RcodeNotImplemented, dns.RcodeRefused, dns.RcodeBadVers}

// Server answers by the zone that it has.
type Server struct {
	self    netip.Addr
	log     *slog.Logger
	zone    atomic.Pointer[Zone]
	results map[string]*atomic.Uint64 // never changed

	limits [byTCP + 1]limits // by transport: what addresses claim to ask by UDP may be forged
}

// limits bound the queries by one transport.
type limits struct {
	total *rate.Limiter

	mu      sync.Mutex
	sources map[netip.Addr]*source // those that asked within the last two seconds
	swept   time.Time              // when others were removed
}

// source is whoever asks from an address.
type source struct {
	queries, part *rate.Limiter
	asked         time.Time
}

// New makes a server that has no zone, and says so. self is what it names as its own address.
func New(self netip.Addr, log *slog.Logger) *Server {
	s := &Server{self: self, log: log, results: map[string]*atomic.Uint64{}}
	for t := range s.limits {
		s.limits[t].total, s.limits[t].sources = rate.NewLimiter(totalRate, totalBurst), map[netip.Addr]*source{}
	}
	for _, rcode := range counted {
		s.results[dns.RcodeToString[rcode]] = new(atomic.Uint64)
	}
	s.results[resultIgnored], s.results[resultLimited] = new(atomic.Uint64), new(atomic.Uint64)
	return s
}

// SetZone has it answer by another zone.
func (s *Server) SetZone(z *Zone) { s.zone.Store(z) }

// Queries is how many there were, by the response code that they got, or why they got none.
func (s *Server) Queries() map[string]uint64 {
	out := map[string]uint64{}
	for result, n := range s.results {
		out[result] = n.Load()
	}
	return out
}

// Listener is where a server is asked, by UDP and TCP.
type Listener struct {
	udp *net.UDPConn
	tcp *net.TCPListener
}

// Listen takes an address, host:port, for both. Port 0 is one that is free.
func Listen(ctx context.Context, address string) (*Listener, error) {
	var lc net.ListenConfig
	tcp, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	udp, err := lc.ListenPacket(ctx, "udp", tcp.Addr().String())
	if err != nil {
		return nil, errors.Join(err, tcp.Close())
	}
	return &Listener{udp: udp.(*net.UDPConn), tcp: tcp.(*net.TCPListener)}, nil
}

// Addr is the address, with the port.
func (l *Listener) Addr() netip.AddrPort { return l.udp.LocalAddr().(*net.UDPAddr).AddrPort() }

// Serve answers until ctx ends, and closes the listener.
func (s *Server) Serve(ctx context.Context, l *Listener) {
	var running sync.WaitGroup
	defer running.Wait()
	stop := context.AfterFunc(ctx, func() { l.udp.Close(); l.tcp.Close() })
	defer stop()
	running.Go(func() { s.serveUDP(ctx, l.udp) })
	s.serveTCP(ctx, connlimit.Listen(l.tcp, connlimit.Options[netip.Addr]{Of: connlimit.Address, Each: sourceConns, Total: totalConns}), &running)
}

func (s *Server) serveUDP(ctx context.Context, conn *net.UDPConn) {
	b := make([]byte, maxQuery+1)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(b)
		if err != nil {
			if !s.pause(ctx, err) {
				return
			}
			continue
		}
		if response := s.handle(ctx, b[:n], byUDP, from.Addr()); response != nil {
			// A lost response is asked for again.
			_, _ = conn.WriteToUDPAddrPort(response, from)
		}
	}
}

// pause waits after an error of a socket, and reports whether there is more to come.
func (s *Server) pause(ctx context.Context, err error) bool {
	if ctx.Err() == nil {
		s.log.Debug("the DNS server's socket failed", "error", err)
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(again):
		return true
	}
}

func (s *Server) serveTCP(ctx context.Context, ln net.Listener, running *sync.WaitGroup) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			if !s.pause(ctx, err) {
				return
			}
			continue
		}
		running.Go(func() {
			defer conn.Close()
			stop := context.AfterFunc(ctx, func() { conn.Close() })
			defer stop()
			s.serveConn(ctx, conn, connlimit.Address(conn))
		})
	}
}

// serveConn answers the queries of a connection, each of which has its length before it.
func (s *Server) serveConn(ctx context.Context, conn net.Conn, from netip.Addr) {
	b := make([]byte, maxQuery)
	for conn.SetDeadline(time.Now().Add(idleTimeout)) == nil {
		var length [2]byte
		if _, err := io.ReadFull(conn, length[:]); err != nil {
			return
		}
		n := int(binary.BigEndian.Uint16(length[:]))
		if n > len(b) {
			return
		}
		if _, err := io.ReadFull(conn, b[:n]); err != nil {
			return
		}
		response := s.handle(ctx, b[:n], byTCP, from)
		if response == nil {
			return
		}
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(response))), response...)); err != nil {
			return
		}
	}
}

// handle answers one query, if it is one and there is room for it.
func (s *Server) handle(ctx context.Context, query []byte, t transport, from netip.Addr) []byte {
	if !s.admit(ctx, t, from) {
		s.results[resultLimited].Add(1)
		if t == byTCP { // the server ends
			return nil
		}
		return elsewhere(query)
	}
	response, rcode := respond(query, t, s.zone.Load(), s.self)
	result := resultIgnored
	if response != nil {
		result = dns.RcodeToString[rcode]
	}
	s.results[result].Add(1)
	return response
}

// admit reports whether a query may be answered. By TCP it waits until it may: whoever asks fast is slowed
// down.
func (s *Server) admit(ctx context.Context, t transport, from netip.Addr) bool {
	l := &s.limits[t]
	x := l.asks(from.Unmap(), time.Now())
	if t == byTCP {
		return x.queries.Wait(ctx) == nil && (l.total.Allow() || x.part.Wait(ctx) == nil)
	}
	return x.queries.Allow() && (l.total.Allow() || x.part.Allow())
}

// asks notes that an address asks, and returns its limits.
func (l *limits) asks(from netip.Addr, now time.Time) *source {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.swept) >= time.Second { // those that are removed would have all of their burst again
		maps.DeleteFunc(l.sources, func(_ netip.Addr, x *source) bool { return now.Sub(x.asked) >= time.Second })
		l.swept = now
	}
	if l.sources[from] == nil && len(l.sources) >= maxSources {
		from = netip.Addr{}
	}
	x := l.sources[from]
	if x == nil {
		x = &source{queries: rate.NewLimiter(sourceRate, sourceBurst)}
		l.sources[from] = x
	}
	x.asked = now
	part := totalRate / len(l.sources)
	switch {
	case x.part == nil:
		x.part = rate.NewLimiter(rate.Limit(part), part)
	case x.part.Burst() != part:
		x.part.SetLimitAt(now, rate.Limit(part))
		x.part.SetBurstAt(now, part)
	}
	return x
}
