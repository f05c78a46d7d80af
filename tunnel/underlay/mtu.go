package underlay

const (
	// overlayMTUMax is what an Ethernet of 1500 bytes leaves over IPv6, and the least
	// that IPv6 inside the tunnel may have (RFC 8200 §5).
	overlayMTUMax = 1420
	overlayMTUMin = 1280
	// wireGuardOverhead is a data message's header and tag in bytes (whitepaper §5.4.6).
	wireGuardOverhead = 32
)

// OverlayMTU is the MTU of the tunnel over an interface, in bytes: what is left of the
// interface's after IP, UDP and WireGuard headers. It is never more than 1420. Never
// less than 1280 either: where the interface has less to give, the outer datagrams
// travel in fragments.
func OverlayMTU(interfaceMTU int, v6 bool) int {
	outer := 20 + 8
	if v6 {
		outer = 40 + 8
	}
	return max(overlayMTUMin, min(overlayMTUMax, interfaceMTU-outer-wireGuardOverhead))
}
