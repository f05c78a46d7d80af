//go:build !e2e

package lab

import "slices"

// played are those that take little: of networks with and without a relay, of changes under
// a transfer, and of faults in files, on the way and at an API server.
func played() []Scenario {
	few := []string{DefaultScenario, "address-restricted", "nat-reboot", "restart", "wrong-key", "small-mtu", "api-401"}
	return slices.DeleteFunc(Scenarios(), func(s Scenario) bool { return !slices.Contains(few, s.Name) })
}
