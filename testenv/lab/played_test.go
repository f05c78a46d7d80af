//go:build !e2e

package lab

import "slices"

// played returns cheap scenarios: networks with and without a relay, and changes during a
// transfer. The script of `postern lab` plays the faults, under the race detector, too.
func played() []Scenario {
	few := []string{DefaultScenario, "address-restricted", "nat-reboot", "restart", "small-mtu"}
	return slices.DeleteFunc(Scenarios(), func(s Scenario) bool { return !slices.Contains(few, s.Name) })
}
