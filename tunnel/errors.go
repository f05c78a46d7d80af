package tunnel

import "errors"

var (
	// ErrPortInUse is returned by New when another socket has the UDP port.
	ErrPortInUse = errors.New("the port is in use")
	// ErrUnknownPeer is returned for a key that is not in the peer set.
	ErrUnknownPeer = errors.New("no such peer")
	// ErrNotManaged is returned for a peer that finds its path by itself.
	ErrNotManaged = errors.New("the peer's path is not managed")
	// ErrPeerSet is wrapped by SetPeers' refusals; nothing was changed then.
	ErrPeerSet = errors.New("the peers contradict each other")
	// ErrClosed is returned by methods of an Engine that was closed.
	ErrClosed = errors.New("the tunnel is closed")
)
