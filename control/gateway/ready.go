package gateway

import "errors"

// ready holds while the gateway takes connections; peers have no part in it. It ends when the gateway
// begins to stop: what leads to it forgets it while open connections finish, so that clients whose
// connections are reset then are refused, and do not wait for an address that is gone.
func (g *Gateway) ready() error {
	if g.stopping.Load() {
		return errors.New("the gateway is stopping")
	}
	if g.plane.Bind.Port() == 0 {
		return errors.New("the UDP socket is closed")
	}
	return nil
}
