package api

import "time"

// DefaultWait is how long requests wait for other gateways by default. It is long enough for a
// handshake with every candidate and the exchange that follows, over a slow link.
const DefaultWait = 30 * time.Second

// MaxCAData bounds the API server's CA certificates that a gateway sends its peers, in bytes of
// PEM: some twenty authorities.
const MaxCAData = 32 << 10

// DefaultConnectionsPerSecond is the default of [Limits.ConnectionsPerSecond]. A client that is
// started for each request, or a page that opens 128 connections in a row, stays within it. At full
// rate one peer opens 350 a second on two processors, which leaves others less than they need.
const DefaultConnectionsPerSecond = 50
