package simnet

// Sizes of fragments: IPv4 fragments carry multiples of 8 bytes (RFC 791 §3.2), IPv6 ones have an
// additional header of 8 bytes (RFC 8200 §4.5).
const (
	fragmentUnit       = 8
	ipv6FragmentHeader = 8
)

// fragments returns the number of IP packets in which a datagram travels, their total bytes and
// the bytes of the largest, headers included. Only the receiver's kernel reassembles fragments,
// and NATs, which need the ports. NATs then fragment them again in the same way.
func (p *packet) fragments() (count, bytes, largest int) {
	whole := p.ipSize()
	if p.cutTo == 0 || whole <= p.cutTo {
		return 1, whole, whole
	}
	header := ipv4Header
	if !p.dst.Addr().Is4() {
		header = ipv6Header + ipv6FragmentHeader
	}
	body := udpHeader + len(p.payload)
	room := max((p.cutTo-header)&^(fragmentUnit-1), fragmentUnit)
	count = (body + room - 1) / room
	return count, body + count*header, header + min(room, body)
}

// fit makes a packet fit the direction, fragmenting it if permitted; false if it is too large.
// Only the sending host fragments IPv6, never routers (RFC 8200 §5).
func (d *direction) fit(p *packet) bool {
	if _, _, largest := p.fragments(); largest <= d.MTU {
		return true
	}
	fromHost := d.way == Up && p.origin != nil && d.link.down.to == node(p.origin.host)
	if !d.Fragment || p.dontFragment || !p.dst.Addr().Is4() && !fromHost {
		return false
	}
	p.cutTo = d.MTU
	return true
}
