package underlay

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strconv"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
)

// leanEndpoint is a remote address in the kernel's form, and the local address to answer from: the
// one it was sent to. All but cleared and limit is immutable, so all datagrams of a flow may share
// one.
type leanEndpoint struct {
	netip.AddrPort
	name    unix.RawSockaddrInet6 // holds a RawSockaddrInet4 for IPv4
	nameLen uint32
	src     netip.Addr // invalid: the kernel chooses
	cleared atomic.Bool
	limit   atomic.Pointer[limit] // nil: segments of any size may be tried
}

var (
	_ addressed = (*leanEndpoint)(nil)
	_ sharable  = (*leanEndpoint)(nil)
)

func newLeanEndpoint(a netip.AddrPort, src netip.Addr) *leanEndpoint {
	ep := &leanEndpoint{AddrPort: a, src: src}
	if a.Addr().Is4() {
		sa := (*unix.RawSockaddrInet4)(unsafe.Pointer(&ep.name))
		sa.Family = unix.AF_INET
		sa.Addr = a.Addr().As4()
		putPort(&sa.Port, a.Port())
		ep.nameLen = unix.SizeofSockaddrInet4
		return ep
	}
	ep.name.Family = unix.AF_INET6
	ep.name.Addr = a.Addr().As16()
	ep.name.Scope_id = scopeID(a.Addr().Zone())
	putPort(&ep.name.Port, a.Port())
	ep.nameLen = unix.SizeofSockaddrInet6
	return ep
}

// putPort writes the port in network byte order, as a sockaddr holds it.
func putPort(field *uint16, port uint16) {
	binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(field))[:], port)
}

func getPort(field *uint16) uint16 {
	return binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(field))[:])
}

// scopeID returns the interface index of a zone, given as a number or a name.
func scopeID(zone string) uint32 {
	if zone == "" {
		return 0
	}
	if id, err := strconv.ParseUint(zone, 10, 32); err == nil {
		return uint32(id)
	}
	if ifi, err := net.InterfaceByName(zone); err == nil {
		return uint32(ifi.Index)
	}
	return 0
}

// ClearSrc makes the kernel choose the source address from now on. A later datagram creates an
// endpoint with a source address again.
func (e *leanEndpoint) ClearSrc() { e.cleared.Store(true) }

// SrcIP is the local address to answer from, invalid if the kernel chooses.
func (e *leanEndpoint) SrcIP() netip.Addr {
	if e.cleared.Load() {
		return netip.Addr{}
	}
	return e.src
}

func (e *leanEndpoint) sharable() {}

func (e *leanEndpoint) SrcToString() string {
	if src := e.SrcIP(); src.IsValid() {
		return src.String()
	}
	return ""
}

func (e *leanEndpoint) DstToString() string { return e.String() }
func (e *leanEndpoint) DstIP() netip.Addr   { return e.Addr() }
func (e *leanEndpoint) DstToBytes() []byte {
	b, _ := e.MarshalBinary() // never fails
	return b
}

// flowsKept bounds the table of shared endpoints per socket: two generations of this many entries
// of about 200 bytes.
const flowsKept = 512

// flowKey is a remote and a local address in the kernel's form.
type flowKey struct {
	remote, local [16]byte
	scope         uint32
	port          uint16
}

// flows shares endpoints among the datagrams of a flow, so that neither a transfer nor a flood from
// one source allocates. The table has two generations: when the young one is full it becomes the
// old one, and entries move back when they are next used. Only one goroutine uses it.
type flows struct {
	lastKey    flowKey
	last       *leanEndpoint
	otherKey   flowKey // of a datagram not worth keeping
	other      *leanEndpoint
	young, old map[flowKey]*leanEndpoint
}

// endpoint finds or makes the endpoint of a flow; make is called only for a new one. Only data
// messages are kept, so that floods of anything else do not touch the table.
func (f *flows) endpoint(key flowKey, keep bool, make func() *leanEndpoint) *leanEndpoint {
	if f.last != nil && f.lastKey == key && !f.last.cleared.Load() {
		return f.last
	}
	ep, young := f.young[key]
	if ep == nil {
		ep = f.old[key]
	}
	if ep == nil && f.otherKey == key {
		ep = f.other
	}
	if ep == nil || ep.cleared.Load() {
		ep, young = make(), false
	}
	if keep {
		if !young {
			f.insert(key, ep)
		}
		f.lastKey, f.last = key, ep
		return ep
	}
	f.otherKey, f.other = key, ep
	return ep
}

func (f *flows) insert(key flowKey, ep *leanEndpoint) {
	if f.young == nil || len(f.young) >= flowsKept {
		f.young, f.old = make(map[flowKey]*leanEndpoint), f.young
	}
	f.young[key] = ep
}

var _ conn.Endpoint = (*leanEndpoint)(nil)
