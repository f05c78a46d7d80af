package lab

import (
	"net/netip"
	"sync"

	"github.com/postern-dev/postern/testenv/simnet"
	"github.com/postern-dev/postern/tunnel/underlay"
)

// socket is a gateway's socket: simnet's, with ICMP errors as from a kernel that was asked for
// them, and with the site's simulated send errors.
type socket struct {
	*simnet.Conn
	site    *Site
	closing sync.Once
	closed  chan struct{}
	telling sync.WaitGroup
}

func (s *Site) listen(port uint16) (underlay.PacketConn, error) {
	c, err := s.Host.ListenUDP(port)
	if err != nil {
		return nil, err
	}
	return &socket{Conn: c, site: s, closed: make(chan struct{})}, nil
}

// Refuse makes sending fail with the errors that why returns, as a kernel without a route or with
// a firewall does; nil ends that.
func (s *Site) Refuse(why func(to netip.AddrPort) error) { s.refuses.Store(&why) }

// WriteToUDPAddrPort sends a datagram.
func (s *socket) WriteToUDPAddrPort(b []byte, to netip.AddrPort) (int, error) {
	return s.WriteWith(b, to, 0, false)
}

// WriteWith sends a datagram with a TTL, 0 for the default, and optionally with the
// don't-fragment bit.
func (s *socket) WriteWith(b []byte, to netip.AddrPort, ttl int, dontFragment bool) (int, error) {
	if why := s.site.refuses.Load(); why != nil && *why != nil {
		if err := (*why)(to); err != nil {
			return 0, err
		}
	}
	return s.Conn.WriteWith(b, to, ttl, dontFragment)
}

// OnUnreachable calls f for each ICMP error that reports an unreachable destination, until Close.
func (s *socket) OnUnreachable(f func(to netip.AddrPort, by netip.Addr, reason string)) {
	s.telling.Go(func() {
		for {
			select {
			case e := <-s.ICMP():
				switch e.Kind {
				case simnet.TimeExceeded, simnet.PacketTooBig:
				default:
					f(e.To, e.By, e.Kind.String())
				}
			case <-s.closed:
				return
			}
		}
	})
}

// Close closes the socket, and waits for running callbacks.
func (s *socket) Close() error {
	s.closing.Do(func() { close(s.closed) })
	err := s.Conn.Close()
	s.telling.Wait()
	return err
}
