package underlay

const (
	// overlayMTUMax is what Ethernet's 1500 bytes leave over IPv6, and overlayMTUMin the minimum for
	// IPv6 inside the tunnel (RFC 8200 §5).
	overlayMTUMax = 1420
	overlayMTUMin = 1280
	// wireGuardOverhead is a data message's header and tag in bytes (whitepaper §5.4.6).
	wireGuardOverhead = 32
)

// OverlayMTU is the tunnel's MTU over an interface, in bytes: the interface's MTU less the IP, UDP
// and WireGuard headers. It is at most 1420, and at least 1280: if the interface has less room, the
// outer datagrams are fragmented.
func OverlayMTU(interfaceMTU int, v6 bool) int {
	outer := 20 + 8
	if v6 {
		outer = 40 + 8
	}
	return max(overlayMTUMin, min(overlayMTUMax, interfaceMTU-outer-wireGuardOverhead))
}
