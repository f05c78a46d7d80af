package lab

import (
	"errors"
	"net/netip"
	"sync"

	"github.com/postern-dev/postern/discovery/stunwire"
	"github.com/postern-dev/postern/testenv/simnet"
)

// tester is a STUN server with two addresses and two ports, which answers from another of
// them when asked to (RFC 5780 §4, §6): a gateway learns from it what its NAT lets in.
type tester struct {
	conns   map[netip.AddrPort]*simnet.Conn
	running sync.WaitGroup
}

const testerOtherPort = stunPort + 1

func serveTester(host *simnet.Host) (*tester, error) {
	t := &tester{conns: make(map[netip.AddrPort]*simnet.Conn)}
	for _, a := range testerAddrs {
		for _, port := range []uint16{stunPort, testerOtherPort} {
			at := netip.AddrPortFrom(a, port)
			conn, err := host.ListenAddrPort(at)
			if err != nil {
				return nil, errors.Join(err, t.Close())
			}
			t.conns[at] = conn
		}
	}
	for at, conn := range t.conns {
		t.running.Go(func() { t.serve(at, conn) })
	}
	return t, nil
}

// serve ends when the socket is closed.
func (t *tester) serve(at netip.AddrPort, conn *simnet.Conn) {
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
		by, other := answerFrom(at, m.Change)
		reply, err := stunwire.Encode(&stunwire.Message{
			Class: stunwire.Success, TxID: m.TxID, Mapped: from, Origin: by, Other: other,
		}, nil)
		if err == nil {
			_, _ = t.conns[by].WriteToUDPAddrPort(reply, from) // lost like any datagram
		}
	}
}

// answerFrom gives the socket that answers what came to another, and the address and port
// that both differ from those asked.
func answerFrom(at netip.AddrPort, change stunwire.Change) (by, other netip.AddrPort) {
	otherAddr := testerAddrs[0]
	if at.Addr() == otherAddr {
		otherAddr = testerAddrs[1]
	}
	other = netip.AddrPortFrom(otherAddr, stunPort+testerOtherPort-at.Port())
	by = at
	if change&stunwire.ChangeAddress != 0 {
		by = netip.AddrPortFrom(other.Addr(), by.Port())
	}
	if change&stunwire.ChangePort != 0 {
		by = netip.AddrPortFrom(by.Addr(), other.Port())
	}
	return by, other
}

// Close closes the sockets and waits for the server to end.
func (t *tester) Close() error {
	var errs []error
	for _, c := range t.conns {
		errs = append(errs, c.Close())
	}
	t.running.Wait()
	return errors.Join(errs...)
}
