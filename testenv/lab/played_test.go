//go:build !e2e

package lab

import "slices"

// played are those that take little: of networks with and without a relay, and of changes
// under a transfer. Faults the script of `postern lab` plays, under the race detector too.
func played() []Scenario {
	few := []string{DefaultScenario, "address-restricted", "nat-reboot", "restart", "small-mtu"}
	return slices.DeleteFunc(Scenarios(), func(s Scenario) bool { return !slices.Contains(few, s.Name) })
}
