package underlay

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// limitLifetime is how long an endpoint is believed to take no long segments. Each
	// later try costs one call that fails.
	limitLifetime = 5 * time.Minute
	// smallSegment is a datagram's payload in bytes that every IPv4 host must take
	// (RFC 791 §3.1: 576 - 20 - 8): no link's MTU can be the reason when it is refused.
	smallSegment = 548
)

// limit is the size in bytes from which on UDP_SEGMENT is of no use to an endpoint.
type limit struct {
	size   int
	until  time.Time
	routes uint32 // leanBind.routes when it was found
}

// tooLong reports whether segments of the size were refused lately.
func (e *leanEndpoint) tooLong(size int, routes uint32) bool {
	l := e.limit.Load()
	return l != nil && size >= l.size && routes == l.routes && time.Now().Before(l.until)
}

// routeChanged makes every endpoint forget its limit.
func (b *leanBind) routeChanged() { b.routes.Add(1) }

// sendRun sends the datagrams of a run, whatever it takes. When they cannot go in one
// call they go in one each, and those the kernel cuts into fragments where need be:
//
//   - EMSGSIZE: the segments are longer than the link takes. The endpoint remembers it.
//   - EINVAL: the same on kernels before 6.14. Or the source address has gone from the
//     machine, which sending singly fixes; or the kernel refuses segments altogether,
//     which shows by segments that fit every link.
//   - EIO: the network device cannot do UDP_SEGMENT (udp(7): no checksum offload). Not
//     used again on this socket.
func (s *sender) sendRun(sock *socket, to *leanEndpoint, bufs [][]byte) error {
	if len(bufs) == 1 {
		return s.sendOne(sock, to, bufs)
	}
	err := s.send(sock, to, bufs)
	if err == nil || !errors.Is(err, unix.EMSGSIZE) && !sourceGone(err) && !errors.Is(err, unix.EIO) {
		return err
	}
	source := to.SrcIP()
	var first error
	for i := range bufs {
		if err := s.sendOne(sock, to, bufs[i:i+1]); err != nil && first == nil {
			first = err
		}
	}
	size := len(bufs[0])
	switch {
	case errors.Is(err, unix.EIO):
		s.b.segmentsOff(sock, err)
	case errors.Is(err, unix.EMSGSIZE):
		s.b.remember(to, size)
	case first != nil || to.SrcIP() != source || !errors.Is(err, unix.EINVAL): // There was another reason.
	case size <= smallSegment:
		s.b.segmentsOff(sock, err)
	default:
		s.b.remember(to, size)
	}
	return first
}

// sourceGone reports whether an error may mean that the source address is no longer one
// of this machine's: EINVAL or, since the kernel looks for a route from it first,
// ENETUNREACH (seen on Linux 6.18) and EADDRNOTAVAIL.
func sourceGone(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EADDRNOTAVAIL)
}

// sendOne sends one datagram. When the source address may have gone from the machine the
// kernel shall choose. EMSGSIZE may be due to a probe that forbade fragments
// for a moment.
func (s *sender) sendOne(sock *socket, to *leanEndpoint, buf [][]byte) error {
	err := s.send(sock, to, buf)
	switch {
	case sourceGone(err) && to.SrcIP().IsValid():
		to.ClearSrc()
		return s.send(sock, to, buf)
	case errors.Is(err, unix.EMSGSIZE):
		sock.probing.Lock()
		defer sock.probing.Unlock()
		return s.send(sock, to, buf)
	}
	return err
}

func (b *leanBind) remember(to *leanEndpoint, size int) {
	routes := b.routes.Load()
	if l := to.limit.Load(); l != nil && l.routes == routes {
		size = min(size, l.size)
	}
	to.limit.Store(&limit{size: size, until: time.Now().Add(limitLifetime), routes: routes})
}

func (b *leanBind) segmentsOff(sock *socket, err error) {
	if !sock.noSegments.Swap(true) {
		b.log.Warn("UDP segmentation offload is off: the kernel or the network device refused it; sending costs more CPU",
			"localAddress", sock.conn.LocalAddr().String(), "err", err)
	}
}
