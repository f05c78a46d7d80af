package bench

import (
	"fmt"
	"slices"
)

// AllScenarios is the name that selects every scenario.
const AllScenarios = "all"

// Select keeps the scenarios and, within them, the subjects of the given names; an empty
// list of scenarios keeps those of the default set, and an empty
// list of subjects keeps all. A name that nothing has is an error, so that a misspelt one
// does not look like a short report.
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
