//go:build e2e

package lab

// played are all scenarios.
func played() []Scenario { return Scenarios() }
