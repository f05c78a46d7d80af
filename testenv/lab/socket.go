package lab

import (
	"net/netip"
	"sync"

	"github.com/postern-dev/postern/testenv/simnet"
	"github.com/postern-dev/postern/tunnel/underlay"
)

// socket is a gateway's socket: simnet's, which also tells where nothing listens, as a
// kernel does that was asked for ICMP errors.
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

// OnPortUnreachable tells f until Close.
func (s *socket) OnPortUnreachable(f func(to netip.AddrPort)) {
	s.telling.Go(func() {
		for {
			select {
			case e := <-s.ICMP():
				if e.Kind == simnet.PortUnreachable {
					f(e.To)
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
