package lab

import (
	"net/netip"
	"sync"

	"github.com/postern-dev/postern/testenv/simnet"
	"github.com/postern-dev/postern/tunnel/underlay"
)

// socket is a gateway's socket: simnet's, which also tells of ICMP errors, as a kernel does that
// was asked for them.
type socket struct {
	*simnet.Conn
	closing sync.Once
	closed  chan struct{}
	telling sync.WaitGroup
}

func (s *Site) listen(port uint16) (underlay.PacketConn, error) {
	c, err := s.Host.ListenUDP(port)
	if err != nil {
		return nil, err
	}
	return &socket{Conn: c, closed: make(chan struct{})}, nil
}

// OnUnreachable tells f until Close.
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

// Close closes the socket, and waits until nobody is told any more.
func (s *socket) Close() error {
	s.closing.Do(func() { close(s.closed) })
	err := s.Conn.Close()
	s.telling.Wait()
	return err
}
