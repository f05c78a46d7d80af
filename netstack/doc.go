// Package netstack is a TCP/IP stack inside the process, reached through WireGuard instead of a
// kernel interface. It gives the gateway sockets on its overlay addresses without a TUN device,
// NET_ADMIN or a kernel module.
//
// A [Stack] wraps gVisor's stack. For WireGuard it is a batched
// golang.zx2c4.com/wireguard/tun.Device ([Stack.Device]). The gateway can dial, listen and ping. It
// also gets connection requests before they are answered ([Incoming]), so that it can dial a
// service's upstream first.
//
// # Rules
//
// Outbound: TCP leaves gVisor in segments of up to 64 KB with a partial checksum, as for a network
// card with segmentation offload. [tun.Device].Read cuts them into packets of the overlay MTU
// directly in WireGuard's buffers: one copy, one checksum pass. The rules are those of Linux's TCP
// segmentation offload (Documentation/networking/segmentation-offloads.rst): every segment repeats
// the headers; sequence numbers advance by the MSS; IPv4 IDs count up; FIN and PSH stay on the last
// segment, CWR on the first (RFC 3168 §6.1.2); each segment has its own lengths and checksums (RFC
// 1071). For a peer whose path is narrower, segments are cut to its MTU ([Stack.SetPathMTU]), and
// SYNs announce it.
//
// Inbound: consecutive segments of one flow in a batch are joined before gVisor sees them (generic
// receive offload), under the conditions of Linux's tcp_gro_receive: same headers except for
// length, ID and checksum; sequence numbers without a gap; equal payload sizes except for the last;
// no flags but ACK, ECE, PSH and FIN, the latter two ending a run.
//
// Checksums of inbound packets are not verified, because WireGuard's Poly1305 tag has authenticated
// every packet. Linux's WireGuard relies on that too (drivers/net/wireguard/receive.c marks packets
// CHECKSUM_UNNECESSARY). Outbound checksums are always right, because a stock peer may route
// packets on.
//
// WireGuard's AllowedIPs decide whether an inner source address belongs to the peer that sent it,
// before a packet arrives here. This package decides whether the destination is ours. Nothing is
// ever forwarded.
package netstack
