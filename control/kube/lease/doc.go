// Package lease decides which replica of a gateway is the gateway: the active one holds a
// Lease (coordination.k8s.io/v1), the others stand by. client-go's leaderelection has its
// holder step down when the API server is away; here it goes on, since then nobody else can
// have taken the lease either.
//
// # Rules
//
// With D = leaseSeconds (8 s by default):
//
//   - The active replica writes the lease every D/3, and every D/8 after a write that was not
//     answered; each attempt has D/4. No answer is no reason to step down, until it has lasted
//     for WithoutAPI and there is somebody who could have taken over: a replica that stands by
//     says so in the annotation postern.dev/standby, unless one has already. Any answer that
//     somebody else holds the lease is a reason, at once.
//   - It steps down at once, too, when told that somebody else is active ([Lease.Supersede]).
//     What peers say ([Lease.PeerSawNewer]) counts only where it can be true: while somebody could
//     have taken over (as above), after a silence of the API server of more than D, and not if
//     they said it before its last answer.
//   - A replica that stands by watches the lease, which costs no requests while the active
//     one writes. After D/3 + D/12 without a write it asks, every D/6. It takes the lease when
//     that has not changed for D, as seen by itself (nobody's clock is believed), counted only
//     over time in which the API server answered it: after a silence of more than D/2 it
//     counts from the beginning, so that an active one that outlived an outage has D to
//     write again. It takes it by a write for the version that it saw.
//   - A lease that is given back (no holder) or is its own (the container was started again) it
//     takes at once.
//   - On a clean end the active one goes on writing until all is closed, takes its label away,
//     and gives the lease back.
//
// One gateway at a time: who loses the role has its context ended at once, and takes no other
// part until everything of the role has ended. Two can be active at once only where the active
// one alone is cut off from the API server, which no lease can tell from an outage for all.
// Then peers decide: they hear the newer one's boot number, and the older one is told.
// WithoutAPI is the end of it where even that fails.
//
//	D       8 s    a node that dies silently is replaced after D + 0.3 s, of the 10 s there are
//	D/3     2.67 s  0.375 requests/s in all; three attempts fit in D
//	D/4     2 s    a request that hangs, and D/8 after it, leave one more in D
//	15 min         WithoutAPI: the upgrade of a single control-plane node takes up to some 10 min;
//	               and a node that is cut off is given up by Kubernetes after 6 min
package lease
