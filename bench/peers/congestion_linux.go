package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// The kernel's settings of TCP, which each network namespace has for itself. A thread sees
// those of its own (network_namespaces(7)).
const (
	congestionControl    = "/proc/sys/net/ipv4/tcp_congestion_control"
	congestionControlsIn = "/proc/sys/net/ipv4/tcp_available_congestion_control"
)

// setCongestionControl has the connections at both sites controlled by what the kernel has
// by that name. The machine's own setting stays.
func (s sites) setCongestionControl(name string) error {
	available, err := os.ReadFile(congestionControlsIn)
	if err != nil {
		return fmt.Errorf("which congestion controls are there? %w", err)
	}
	if names := strings.Fields(string(available)); !slices.Contains(names, name) {
		return fmt.Errorf("the kernel has no congestion control %q, only %s (modprobe tcp_%s)", name, strings.Join(names, ", "), name)
	}
	for _, one := range s {
		one.in(func() { err = os.WriteFile(congestionControl, []byte(name), 0) })
		if err != nil {
			return fmt.Errorf("set congestion control: %w", err)
		}
	}
	return nil
}
