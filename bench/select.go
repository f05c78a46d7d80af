package bench

import (
	"fmt"
	"slices"
)

// Select keeps the scenarios and, within them, the subjects of the given names; an
// empty list keeps all. A name that nothing has is an error, so that a misspelt one
// does not look like a short report.
func Select(all []Scenario, scenarios, subjects []string) ([]Scenario, error) {
	for _, name := range scenarios {
		if !slices.ContainsFunc(all, func(s Scenario) bool { return s.Name == name }) {
			return nil, fmt.Errorf("no scenario %q", name)
		}
	}
	for _, name := range subjects {
		if !slices.ContainsFunc(all, func(s Scenario) bool { return slices.Contains(s.Subjects, name) }) {
			return nil, fmt.Errorf("no subject %q", name)
		}
	}
	var out []Scenario
	for _, s := range all {
		if len(scenarios) > 0 && !slices.Contains(scenarios, s.Name) {
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
