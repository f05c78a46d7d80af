// Package portmap asks the router in front of a gateway to forward a UDP port to it, by PCP (RFC
// 6887), NAT-PMP (RFC 6886) or UPnP IGD 2 and 1, tried in this order. A [Mapper] keeps one
// mapping while it runs, and deletes it at the end.
//
// # Wire formats
//
// PCP and NAT-PMP use UDP port 5351 of the router. All numbers are in network order. In PCP an
// IPv4 address is written as an IPv4-mapped IPv6 address (RFC 6887 §5).
//
//	PCP request header (§7.1)              PCP response header (§7.2)
//	 0  1  version 2                        0  1  version 2
//	 1  1  opcode                           1  1  128 | opcode
//	 2  2  reserved                         2  1  reserved
//	                                        3  1  result code (§7.4)
//	 4  4  requested lifetime, s            4  4  lifetime, s (of an error: do not ask again before)
//	 8 16  the client's address             8  4  epoch time, s
//	                                       12 12  reserved
//
//	MAP, opcode 1 (§11.1), from byte 24    ANNOUNCE, opcode 0 (§14.1): the header alone
//	24 12  nonce
//	36  1  protocol (17, UDP)
//	37  3  reserved
//	40  2  internal port
//	42  2  external port, suggested or assigned
//	44 16  external address, suggested or assigned
//
//	NAT-PMP address request (RFC 6886 §3.2)  response
//	 0  1  version 0                          0  1  version 0
//	 1  1  opcode 0                           1  1  128
//	                                          2  2  result code (§3.5)
//	                                          4  4  epoch time, s
//	                                          8  4  external IPv4 address
//
//	NAT-PMP mapping request (§3.3)           response
//	 0  1  version 0                          0  1  version 0
//	 1  1  opcode 1 (UDP)                     1  1  129
//	 2  2  reserved                           2  2  result code
//	 4  2  internal port                      4  4  epoch time, s
//	 6  2  suggested external port            8  2  internal port
//	 8  4  requested lifetime, s             10  2  mapped external port
//	                                         12  4  lifetime, s
//
// UPnP is SSDP (HTTP over UDP at port 1900), a description in XML and SOAP over HTTP (UPnP
// Device Architecture 1.1; WANIPConnection 1 and 2, WANPPPConnection 1).
//
// # Trust in the router and its neighbours
//
// Answers count only from the router's own address. Those of PCP and NAT-PMP arrive on a
// connected socket, so only from port 5351, and must match the outstanding request: PCP's nonce,
// the port and the opcode. For UPnP see [igd]: every URL must be http at the router's own
// address, redirections are not followed, and nothing larger than 64 KB or slower than 5 s is
// read. An external address that is private, or that no host can have, is not a candidate.
//
// # Verification
//
// That a router lists a mapping does not show that packets get through. So the mapping is
// compared with what STUN servers see ([Observation]): see [judge].
//
// # Structure
//
// The machine is a state machine without clock, socket or goroutine; the [Mapper] drives it. UPnP
// takes several HTTP requests in a row, which are one step of the machine and done by the Mapper.
package portmap
