// Package report defines what a gateway reports to a peer about reaching it: whether the peer's
// gateway, auth and API server answer, seen from the other end. A report is a peer's claim, and
// is only trusted about the writer's view of the reader.
//
// # Wire format
//
// One JSON document of at most 16 KB in UTF-8. It is sent inside the tunnel by POST /v1/report
// and in the answer to a hello (package auth). Version 1.1:
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
//	version   major.minor of the writer. A newer minor version is accepted and its additions
//	          are ignored; another major version is refused.
//	at        the writer's clock at the time of writing. All other times are ages in seconds,
//	          so that clocks need not agree.
//	gateway   the writer's own name, a DNS label of at most 40 characters.
//	verdicts  at most one for each of the targets gateway, auth and apiServer; others are
//	          ignored. outcome is ok, warning, error, unknown or off; any other word means
//	          unknown. rtt is that of the check. An ok with the code PST0119 works again, and
//	          has failed lately with the rootCode of its parameters.
//	hears     how long ago the writer had a handshake, an authenticated answer to a probe
//	          and a report from the reader; absent: never. A report without the last one
//	          requests one.
//	nat       the writer's NAT in the terms of RFC 4787.
//	offers    since 1.1: a mark, up to 16 of 0-9 a-f, of what the writer offers the reader.
//	          A mark other than the previous one means that a hello has news. So does the
//	          first mark, unless it came with a hello.
//	identity  since 1.1: a mark of what the identity depends on that the writer has issued
//	          to the reader, "0" if there is nothing. A mark other than the previous one,
//	          unless that was "0", means that the identity is no longer valid. An absent or
//	          invalid mark means nothing.
//
// The parameters have types, by the tags of catalogue.Params. All are optional:
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
//	rootCode checks failures lastFailure
//	                                of what comes and goes: the code, counts of checks (at least
//	                                one failure), and the seconds since one last failed
//	mtu linkMtu size                bytes, at most 65535
//	peerShut                        true: the reader's announced addresses cannot be dialled
//	                                from outside its network
//	token                           true: the writer uses a token instead of a certificate
//
// # What a peer can put on a screen
//
// A report contains no sentences. The reader converts it to findings (Report.Findings). Their
// causes and fixes come from its own catalogue, by the code and these parameters, and only for
// codes about reaching the reader inside the tunnel: a peer cannot invent anything about third
// parties. A text (the name in a certificate, its issuer) is at most 64 characters of A-Z a-z 0-9
// . * _ - : and, for authorities, @; any other text is replaced by "?". So texts contain no
// spaces, slashes, quotes, pipes, control or bidi characters.
//
// Parameters only appear in causes, as the peer's statements: they are marked as heard, and
// package catalogue only takes those into a fix that the schema allows. A fix uses what the
// reader knows: its own port, addresses and NAT (Reader). The only value of a report in a fix is
// a packet size between 1280 and 1500. What the writer may reach here is the reader's decision,
// too: a report that asks for more is answered with what is granted, and never leads to a command
// that grants more.
package report
