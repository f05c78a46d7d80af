package simnet

// Sizes of fragmentation: IPv4 fragments carry multiples of 8 bytes (RFC 791 §3.2), IPv6
// ones have a header of 8 bytes besides (RFC 8200 §4.5).
const (
	fragmentUnit       = 8
	ipv6FragmentHeader = 8
)

// fragments says as how many IP packets a datagram travels and their bytes in all and
// of the largest, headers included. Nobody on the way puts fragments together again but
// to cut them the same: the receiver's kernel does, and NATs, which need the ports.
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

// fit makes a packet fit the direction, cutting it if it may be cut: false if it is too
// large. Routers never cut IPv6 (RFC 8200 §5), only the sending host does.
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
