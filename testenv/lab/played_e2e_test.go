//go:build e2e

package lab

// played returns all scenarios.
func played() []Scenario { return Scenarios() }
