package bench

import (
	"fmt"
	"slices"
)

// AllScenarios is the name that selects every scenario.
const AllScenarios = "all"

// Select returns the named scenarios and, within them, the named subjects. No scenario names mean
// the default set, no subject names mean all. An unknown name is an error, so that a typo does
// not result in a short report.
func Select(all []Scenario, scenarios, subjects []string) ([]Scenario, error) {
	for _, name := range scenarios {
		if name != AllScenarios && !slices.ContainsFunc(all, func(s Scenario) bool { return s.Name == name }) {
			return nil, fmt.Errorf("no scenario %q", name)
		}
	}
	for _, name := range subjects {
		if !slices.ContainsFunc(all, func(s Scenario) bool { return slices.Contains(s.Subjects, name) }) {
			return nil, fmt.Errorf("no subject %q", name)
		}
	}
	wanted := func(s Scenario) bool {
		if len(scenarios) == 0 {
			return s.Default
		}
		return slices.Contains(scenarios, AllScenarios) || slices.Contains(scenarios, s.Name)
	}
	var out []Scenario
	for _, s := range all {
		if !wanted(s) {
			continue
		}
		s.Subjects = slices.DeleteFunc(slices.Clone(s.Subjects), func(name string) bool {
			return len(subjects) > 0 && !slices.Contains(subjects, name)
		})
		if len(s.Subjects) > 0 {
			out = append(out, s)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("none of the scenarios %q has any of the subjects %q", scenarios, subjects)
	}
	return out, nil
}
