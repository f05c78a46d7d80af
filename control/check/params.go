package check

import "time"

// GatewayParams are the parameters of the codes about tunnel, path and exposure.
type GatewayParams struct {
	// From is the address and port that something came from, Seen when it last did.
	From string    `json:"from,omitempty"`
	Seen time.Time `json:"seen,omitzero" report:"fix"`
	// Key is a public key in base64.
	Key string `json:"key,omitempty"`
	// Own are addresses of this gateway as others see them, with the port; Port is the one
	// it listens on.
	Own  []string `json:"own,omitempty" report:"fix"`
	Port uint16   `json:"port,omitempty" report:"fix"`
	// Candidates are the addresses concerned and what became of each.
	Candidates []Candidate `json:"candidates,omitempty" report:"fix"`
	// Stamp is a handshake's timestamp, Newest the newest that was accepted.
	Stamp  time.Time `json:"stamp,omitzero" report:"fix"`
	Newest time.Time `json:"newest,omitzero" report:"fix"`
	// Was and Now are a name's addresses before and after they changed.
	Was []string `json:"was,omitempty"`
	Now []string `json:"now,omitempty"`
	// Sent and Lost count pings, Jitter is the mean difference of successive round trips.
	Sent   int           `json:"sent,omitempty" report:"fix"`
	Lost   int           `json:"lost,omitempty" report:"fix"`
	Jitter time.Duration `json:"jitter,omitempty" report:"fix"`
	// MTU is the largest overlay packet that crosses the path, LinkMTU the overlay's own,
	// Size the smallest that was seen to vanish; in bytes, 0 = not known.
	MTU     int `json:"mtu,omitempty" report:"fix"`
	LinkMTU int `json:"linkMtu,omitempty" report:"fix"`
	Size    int `json:"size,omitempty" report:"fix"`
	// NAT is in front of this gateway, PeerNAT in front of the peer.
	NAT     NAT `json:"nat,omitzero" report:"fix"`
	PeerNAT NAT `json:"peerNat,omitzero" report:"fix"`
	// PeerShut: what the peer announces can be dialled by nobody outside of its network.
	PeerShut bool `json:"peerShut,omitempty" report:"fix"`
	// Relay is a TURN server, Server any server, as configured.
	Relay  string `json:"relay,omitempty"`
	Server string `json:"server,omitempty"`
	// Skew is the peer's clock minus ours.
	Skew time.Duration `json:"skew,omitempty"`
}

// ResourceParams are the parameters of the codes about what the machine gives.
type ResourceParams struct {
	// Used and Max are bytes, or periods of the scheduler.
	Used uint64 `json:"used,omitempty"`
	Max  uint64 `json:"max,omitempty"`
	// Drops counts what was dropped.
	Drops uint64 `json:"drops,omitempty"`
}
