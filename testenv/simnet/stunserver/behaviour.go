package stunserver

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/postern-dev/postern/discovery/stunwire"
	"github.com/postern-dev/postern/testenv/simnet"
)

// BehaviourServer is a STUN server with two addresses and two ports, which on request answers
// from another of them (RFC 5780 §4, §6). So clients can find out how their NATs map and filter.
type BehaviourServer struct {
	first, second netip.AddrPort
	conns         map[netip.AddrPort]*simnet.Conn
	running       sync.WaitGroup
}

// ServeBehaviour starts a server on two addresses of a host. These must differ in address and
// port: each address listens at both ports.
func ServeBehaviour(host *simnet.Host, first, second netip.AddrPort) (*BehaviourServer, error) {
	if first.Addr() == second.Addr() || first.Port() == second.Port() {
		return nil, fmt.Errorf("stunserver: %v and %v have to differ in address and in port", first, second)
	}
	s := &BehaviourServer{first: first, second: second, conns: make(map[netip.AddrPort]*simnet.Conn)}
	for _, a := range []netip.Addr{first.Addr(), second.Addr()} {
		for _, port := range []uint16{first.Port(), second.Port()} {
			at := netip.AddrPortFrom(a, port)
			conn, err := host.ListenAddrPort(at)
			if err != nil {
				return nil, errors.Join(fmt.Errorf("stunserver: %w", err), s.Close())
			}
			s.conns[at] = conn
		}
	}
	for at, conn := range s.conns {
		s.running.Go(func() { s.serve(at, conn) })
	}
	return s, nil
}

// serve runs until the socket is closed.
func (s *BehaviourServer) serve(at netip.AddrPort, conn *simnet.Conn) {
	buf := make([]byte, stunwire.MaxSize+1)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		m, err := stunwire.Parse(buf[:n])
		if err != nil || m.Class != stunwire.Request {
			continue
		}
		by := s.answerer(at, m.Change)
		reply := orSilence(stunwire.Encode(&stunwire.Message{
			Class: stunwire.Success, TxID: m.TxID, Mapped: from, Origin: by, Other: s.opposite(at),
		}, nil))
		if reply != nil {
			_, _ = s.conns[by].WriteToUDPAddrPort(reply, from) // lost like any datagram; the client will retry
		}
	}
}

// answerer returns the address that answers a request to another.
func (s *BehaviourServer) answerer(at netip.AddrPort, change stunwire.Change) netip.AddrPort {
	by, other := at, s.opposite(at)
	if change&stunwire.ChangeAddress != 0 {
		by = netip.AddrPortFrom(other.Addr(), by.Port())
	}
	if change&stunwire.ChangePort != 0 {
		by = netip.AddrPortFrom(by.Addr(), other.Port())
	}
	return by
}

// opposite returns the server's address that shares neither address nor port with at.
func (s *BehaviourServer) opposite(at netip.AddrPort) netip.AddrPort {
	a, port := s.first.Addr(), s.first.Port()
	if at.Addr() == a {
		a = s.second.Addr()
	}
	if at.Port() == port {
		port = s.second.Port()
	}
	return netip.AddrPortFrom(a, port)
}

// Close closes the sockets and waits for the server to end.
func (s *BehaviourServer) Close() error {
	var errs []error
	for _, c := range s.conns {
		errs = append(errs, c.Close())
	}
	s.running.Wait()
	return errors.Join(errs...)
}
