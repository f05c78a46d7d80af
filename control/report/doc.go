// Package report is what a gateway tells a peer of reaching it: whether the peer's
// gateway, auth and API server answer, seen from the other end. A report is a peer's
// claim about its view of this gateway and of nothing else, and its reader trusts it so
// far and no further.
//
// # Wire format
//
// One JSON document of at most 16 KB in UTF-8, handed over inside the tunnel by POST
// /v1/report and with the answer to a hello (package auth). Version 1.1:
//
//	{"version":"1.1","at":"2026-03-02T12:00:00Z","gateway":"edge",
//	 "verdicts":[
//	  {"target":"gateway","outcome":"ok","rtt":0.0123,"age":12},
//	  {"target":"auth","outcome":"ok","rtt":0.0135,"age":12},
//	  {"target":"apiServer","outcome":"error","code":"PST0502","stage":"tls","age":12,
//	   "params":{"address":"[fd00::1]:6443","serverName":"api.example.net","names":["kubernetes","10.0.0.1"]}}],
//	 "hears":{"handshake":31,"probe":2,"report":290},
//	 "nat":{"mapping":"endpoint-independent","filtering":"address-and-port-dependent"},
//	 "offers":"0f3a9c","identity":"77e1b2"}
//
//	version   major.minor of the writer. A newer minor is accepted and what it adds is
//	          passed over; another major is refused.
//	at        the writer's clock as it wrote; all else is told in ages, in seconds, so
//	          that clocks need not agree.
//	gateway   what the writer calls itself, a DNS label of at most 40 characters.
//	verdicts  at most one each for the targets gateway, auth and apiServer; others are
//	          passed over. outcome is ok, warning, error, unknown or off, and unknown if
//	          it is another word. rtt is that of the check.
//	hears     how long ago the writer had a handshake, an authenticated answer to a
//	          probe and a report of the reader; absent: never. A report without the last
//	          asks for one.
//	nat       the writer's NAT in the words of RFC 4787.
//	offers    since 1.1: a mark, up to 16 of 0-9 a-f, of what the writer offers the
//	          reader. Another one than before says that a hello has news, and so does
//	          the first, unless it came with one.
//	identity  since 1.1: a mark of what the identity hangs on that the writer has issued
//	          to the reader, "0" while there is nothing. Another one than before, unless
//	          that was "0", says that the identity is good no more. A mark that is
//	          absent, or is none, says nothing.
//
// The parameters have types, by the tags of catalogue.Params; all may be absent:
//
//	address besideAddress relay     IP:port without a zone, or a host name with a port
//	remote from                     IP:port
//	endpoints                       IP:port, at most 8
//	candidates                      at most 8 of {address, source, state}, source and state
//	                                in the words of Status
//	was now                         IP addresses, at most 8
//	serverName names issuer authorities
//	                                texts (below), at most 8 names and 8 authorities
//	failure beside nat peerNat      words of a fixed list
//	status                          of HTTP, 100 to 599
//	age timeout took way seen jitter
//	                                seconds
//	notBefore notAfter stamp newest RFC 3339
//	version ownVersion              major.minor
//	limit sent lost                 counts
//	mtu linkMtu size                bytes, at most 65535
//	peerShut                        true: what the reader announces is dialled in vain
//	token                           true: the writer shows a token, no certificate
//
// # What a peer can put on a screen
//
// A report carries no sentence. The reader makes findings of it (Report.Findings), whose cause
// and fix come from its own table out of the code and these parameters, and only for codes that
// say something about reaching the reader inside the tunnel: a peer can invent nothing about
// third parties. A text (the name in a certificate, its issuer) is at most 64 characters of
// A-Z a-z 0-9 . * _ - : and, of authorities, @; one that holds anything else is "?" as a
// whole. So there are no blanks, slashes, quotes, pipes, control or bidi characters in it.
//
// The parameters end in causes, as what the peer says: they are marked as heard, and package
// catalogue takes no more of them into a fix than the schema allows. A fix is made of what the reader
// knows: its own port, addresses and NAT (Reader), and no address, name or number that came
// with a report but a packet size between 1280 and 1500. What the writer may reach here is
// the reader's decision too: a report that asks for more is answered with what is granted,
// and no command that grants more comes of it.
package report
