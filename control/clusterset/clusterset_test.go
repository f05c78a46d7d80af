package clusterset

import (
	"context"
	"testing"
)

// Unchanged namespaces cause no work.
func TestNamespacesThatAreTheSameCostNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // so that nothing is reconciled
	c := &Clusterset{o: Options{Ctx: ctx}, wake: make(chan struct{}, 1)}
	for _, step := range []struct {
		namespaces []string
		all        bool
	}{{nil, true}, {nil, false}, {[]string{"shop", "bank"}, true}, {[]string{"bank", "shop"}, false}, {[]string{"bank"}, true}} {
		c.due = due{}
		if c.SetNamespaces(step.namespaces); c.due.all != step.all {
			t.Errorf("with %v all is looked at: %v", step.namespaces, c.due.all)
		}
	}
}
