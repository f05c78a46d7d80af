package check

import (
	"testing"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
)

// What follows from another check is fixed by that one's command.
func TestADependentVerdictHasTheCommandOfItsRoot(t *testing.T) {
	f := facts()
	root := begin(api.ServiceAuth, f).fail(api.Error, StageHTTP, catalogue.AuthTimeout, catalogue.Params{})
	if root.Verdict.Command != "postern ping cloud --layer overlay" {
		t.Fatalf("got the command %q", root.Verdict.Command)
	}
	waits := begin(api.ServiceAPIServer, f).fail(api.Error, StageTCP, catalogue.APIServerHTTP, catalogue.Params{}).waitFor(root)
	for _, r := range []Result{waits, dependent(api.ServiceAPIServer, api.ServiceAPIServer, f, root)} {
		if r.Verdict.Command != root.Verdict.Command {
			t.Errorf("got the command %q, want the root's: %s", r.Verdict.Command, r.Verdict.Fix)
		}
	}
}
