// Package netstack is a TCP/IP stack inside the process, reached through WireGuard
// instead of a kernel interface. It gives the gateway sockets on its overlay addresses
// without a TUN device, NET_ADMIN or a kernel module.
//
// A [Stack] wraps gVisor's stack. Towards WireGuard it is a batched
// golang.zx2c4.com/wireguard/tun.Device ([Stack.Device]); towards the gateway it dials,
// listens, pings, and hands over connection requests before they are answered
// ([Incoming]), so that a service's upstream can be dialled first.
//
// # The rules it stands on
//
// Outbound: TCP leaves gVisor in segments of up to 64 KB with a partial checksum, as it
// would to a network card with segmentation offload. [tun.Device].Read cuts them into
// packets of the overlay MTU straight into WireGuard's buffers: one copy, one checksum
// pass. The rules of cutting are those of Linux's TCP segmentation offload
// (Documentation/networking/segmentation-offloads.rst): every segment repeats the
// headers; sequence numbers advance by the MSS; IPv4 IDs count up; FIN and PSH stay on
// the last segment, CWR on the first (RFC 3168 §6.1.2); lengths and checksums
// (RFC 1071) are each segment's own. Towards a peer whose path is narrower they are cut to
// that ([Stack.SetPathMTU]), and SYNs announce it.
//
// Inbound: consecutive segments of one flow in a batch are joined again before gVisor
// sees them (generic receive offload), under the conditions of Linux's tcp_gro_receive:
// same headers except for length, ID and checksum; sequence numbers without a gap; equal
// payload sizes except for the last; no flags but ACK, ECE, PSH and FIN, the latter two
// ending a run.
//
// Checksums of inbound packets are not verified: every packet was authenticated by
// WireGuard's Poly1305 tag, which is what Linux's WireGuard relies on too
// (drivers/net/wireguard/receive.c marks packets CHECKSUM_UNNECESSARY). Outbound
// checksums are always right, because a stock peer may route packets on.
//
// Whether an inner source address belongs to the peer that sent it is decided by
// WireGuard's AllowedIPs before a packet arrives here. Whether the destination is ours is
// decided here: nothing is ever forwarded.
package netstack
