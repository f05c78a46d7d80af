package tunnel

import "errors"

var (
	// ErrPortInUse is returned by New when another socket has the UDP port.
	ErrPortInUse = errors.New("the port is in use")
	// ErrUnknownPeer is returned for a key that is not in the peer set.
	ErrUnknownPeer = errors.New("no such peer")
	// ErrNotManaged is returned for a peer that finds its own path.
	ErrNotManaged = errors.New("the peer's path is not managed")
	// ErrPeerSet is wrapped by the errors of SetPeers when nothing was changed.
	ErrPeerSet = errors.New("the peers contradict each other")
	// ErrClosed is returned by methods of a closed Engine.
	ErrClosed = errors.New("the tunnel is closed")
)
