// Package lease decides which replica of a gateway is active: the active one holds a Lease
// (coordination.k8s.io/v1), the others are standbys. client-go's leaderelection makes its holder step
// down when the API server is away. Here it stays active, since nobody else can take the lease then.
//
// # Rules
//
// With D = leaseSeconds (8 s by default):
//
//   - The active replica writes the lease every D/3, and every D/8 after a write without an
//     answer; each attempt may take D/4. A missing answer is no reason to step down, unless it
//     lasts for WithoutAPI and there is a replica that could have taken over: a standby says so
//     in the annotation postern.dev/standby, unless one has already. Any answer that another
//     replica holds the lease makes it step down at once.
//   - It also steps down at once when told that another replica is active ([Lease.Supersede]).
//     What peers say ([Lease.PeerSawNewer]) counts only if it can be true: while a replica could
//     have taken over (as above), after the API server has been silent for more than D, and not
//     if it was said before the server's last answer.
//   - A standby watches the lease, which costs no requests while the active replica writes.
//     After D/3 + D/12 without a write it asks, every D/6. It takes the lease once that has not
//     changed for D by its own clock, counting only time in which the API server answered it.
//     After a silence of more than D/2 it starts counting again, so that an active replica that
//     survived an outage has D to write again. It takes the lease by a write conditional on the
//     version that it saw.
//   - It takes a lease that was released (no holder), or is its own (the container was
//     restarted), at once.
//   - On a clean end the active replica keeps writing until everything is closed, removes its
//     label, and releases the lease.
//
// One gateway at a time: a replica that loses the role has its context cancelled at once, and takes
// no other role until everything of the old one has ended. Two can be active at once only if the
// active one alone is cut off from the API server, which no lease can distinguish from an outage for
// all. Then peers decide: they hear the newer one's boot number, and the older one is told.
// WithoutAPI ends the situation if even that fails.
//
//	D       8 s     a node that dies silently is replaced after D + 0.3 s, of the 10 s there are
//	D/3     2.67 s  0.375 requests/s in all; three attempts fit in D
//	D/4     2 s     a request that hangs, and D/8 after it, leave one more in D
//	15 min          WithoutAPI: the upgrade of a single control-plane node takes up to some 10 min;
//	                and a node that is cut off is given up by Kubernetes after 6 min
package lease
