package api

import "time"

// DefaultWait is how long requests that wait for other gateways do so unless they say. It is
// long enough for a handshake with every candidate and the exchange that follows, over a slow
// link.
const DefaultWait = 30 * time.Second

// MaxCAData bounds the certificates that a gateway tells its peers of its API server, in
// bytes of PEM: some twenty authorities.
const MaxCAData = 32 << 10

// DefaultConnectionsPerSecond is [Limits.ConnectionsPerSecond] by default. A client that is
// started for each request, or a page that opens 128 connections in a row, is within it; at
// full rate one peer makes 350 a second on two processors, which leaves others less than they
// need.
const DefaultConnectionsPerSecond = 50
