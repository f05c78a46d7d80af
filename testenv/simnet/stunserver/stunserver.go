// Package stunserver is a STUN server (RFC 8489, Binding without authentication) for simulated
// hosts and tests. It returns to each sender the address that it sees. It can simulate faulty
// servers, which do not answer, return an error or lie.
package stunserver

import (
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/postern-dev/postern/discovery/stunwire"
)

// PacketConn is the server's socket. *simnet.Conn and *net.UDPConn implement it.
type PacketConn interface {
	ReadFromUDPAddrPort([]byte) (int, netip.AddrPort, error)
	WriteToUDPAddrPort([]byte, netip.AddrPort) (int, error)
	Close() error
}

// Response returns the answer to a request from an address; nil means none.
type Response func(request *stunwire.Message, from netip.AddrPort) []byte

// Honest answers with the request's source address.
func Honest(request *stunwire.Message, from netip.AddrPort) []byte {
	return Lying(from)(request, from)
}

// Silent answers nothing.
func Silent(*stunwire.Message, netip.AddrPort) []byte { return nil }

// Lying answers every request with the same address.
func Lying(mapped netip.AddrPort) Response {
	return func(request *stunwire.Message, _ netip.AddrPort) []byte {
		return orSilence(stunwire.BindingResponse(request.TxID, mapped))
	}
}

// Failing answers with an error, code 300 to 699.
func Failing(code int, reason string) Response {
	return func(request *stunwire.Message, _ netip.AddrPort) []byte {
		return orSilence(stunwire.BindingError(request.TxID, code, reason))
	}
}

// orSilence returns the answer, or nil if it could not be encoded.
func orSilence(b []byte, err error) []byte {
	if err != nil {
		return nil
	}
	return b
}

// Server answers binding requests until it is closed. It is safe for concurrent use.
type Server struct {
	conn     PacketConn
	response atomic.Pointer[Response]
	requests atomic.Uint64
	running  sync.WaitGroup
}

// Serve starts an honest server on a socket, and takes ownership of the socket.
func Serve(conn PacketConn) *Server {
	s := &Server{conn: conn}
	s.SetResponse(Honest)
	s.running.Go(s.serve)
	return s
}

// SetResponse changes the responses from now on.
func (s *Server) SetResponse(r Response) { s.response.Store(&r) }

// Requests returns the number of binding requests received, answered or not.
func (s *Server) Requests() uint64 { return s.requests.Load() }

// Close closes the socket and waits for the server to end.
func (s *Server) Close() error {
	err := s.conn.Close()
	s.running.Wait()
	return err
}

// serve runs until the socket is closed.
func (s *Server) serve() {
	buf := make([]byte, stunwire.MaxSize+1)
	for {
		n, from, err := s.conn.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		s.answer(buf[:n], from)
	}
}

func (s *Server) answer(b []byte, from netip.AddrPort) {
	m, err := stunwire.Parse(b)
	if err != nil || m.Class != stunwire.Request {
		return
	}
	s.requests.Add(1)
	if reply := (*s.response.Load())(m, from); reply != nil {
		_, _ = s.conn.WriteToUDPAddrPort(reply, from) // lost like any datagram; the client will retry
	}
}
