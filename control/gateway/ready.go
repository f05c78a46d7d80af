package gateway

import "errors"

// ready succeeds while the gateway accepts connections, whatever the state of its peers. It fails
// as soon as the gateway begins to stop: load balancers then drop it while open connections finish.
// Clients whose connections are reset later are refused quickly and do not wait for a dead address.
func (g *Gateway) ready() error {
	if g.stopping.Load() {
		return errors.New("the gateway is stopping")
	}
	if g.plane.Bind.Port() == 0 {
		return errors.New("the UDP socket is closed")
	}
	return nil
}
