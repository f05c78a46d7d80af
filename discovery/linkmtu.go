package discovery

import (
	"fmt"
	"net"
)

// LinkMTU returns the smallest MTU, in bytes, of the interfaces whose addresses may be candidates:
// a packet of that size leaves this host unfragmented on any route. It is 0 if there is no such
// interface.
func LinkMTU() (int, error) {
	all, err := net.Interfaces()
	if err != nil {
		return 0, fmt.Errorf("list the interfaces: %w", err)
	}
	return linkMTU(all, func(i net.Interface) bool {
		addrs, err := i.Addrs()
		return err == nil && len(addrs) > 0
	}), nil
}

func linkMTU(all []net.Interface, addressed func(net.Interface) bool) int {
	least := 0
	for _, i := range all {
		if i.Flags&net.FlagUp == 0 || i.MTU <= 0 || ignoredInterface(i.Name) || !addressed(i) {
			continue
		}
		if least == 0 || i.MTU < least {
			least = i.MTU
		}
	}
	return least
}
