package underlay

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// limitLifetime is how long an endpoint is assumed to reject long segments. Each later try
	// costs one failed call.
	limitLifetime = 5 * time.Minute
	// smallSegment is a datagram payload in bytes that every IPv4 host must accept (RFC 791 §3.1:
	// 576 - 20 - 8): if it is rejected, no link's MTU is the reason.
	smallSegment = 548
)

// limit is the size in bytes from which UDP_SEGMENT does not work for an endpoint.
type limit struct {
	size   int
	until  time.Time
	routes uint32 // leanBind.routes when it was found
}

// tooLong reports whether segments of the size were rejected recently.
func (e *leanEndpoint) tooLong(size int, routes uint32) bool {
	l := e.limit.Load()
	return l != nil && size >= l.size && routes == l.routes && time.Now().Before(l.until)
}

// routeChanged makes every endpoint forget its limit.
func (b *leanBind) routeChanged() { b.routes.Add(1) }

// sendRun sends the datagrams of a run in any case. If they cannot go in one call they are sent one
// by one, and the kernel fragments those that are too long:
//
//   - EMSGSIZE: the segments are longer than the link's MTU. The endpoint remembers it.
//   - EINVAL: the same on kernels before 6.14. Or the host has lost the source address, which
//     sending one by one fixes; or the kernel rejects all segments, even those that fit
//     every link.
//   - EIO: the network device cannot do UDP_SEGMENT (udp(7): no checksum offload). It is
//     not used again on this socket.
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

// sourceGone reports whether an error may mean that this host has lost the source address: EINVAL
// or, since the kernel first looks for a route from it, ENETUNREACH (seen on Linux 6.18) and
// EADDRNOTAVAIL.
func sourceGone(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EADDRNOTAVAIL)
}

// sendOne sends one datagram. If this host may have lost the source address, the kernel chooses.
// EMSGSIZE may be due to a probe that set DF for a moment.
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
		b.log.Warn("UDP segmentation offload rejected by the kernel or device; falling back, at a higher CPU cost",
			"localAddress", sock.conn.LocalAddr().String(), "error", err)
	}
}
