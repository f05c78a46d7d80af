package check

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
)

// A finding that depends on another check has that one's command.
func TestADependentVerdictHasTheCommandOfItsRoot(t *testing.T) {
	f := facts()
	root := begin(api.ServiceAuth, api.ServiceAuth, f).fail(api.Error, StageHTTP, catalogue.AuthTimeout, catalogue.Params{})
	if root.Verdict().Command != "postern ping cloud --layer overlay" {
		t.Fatalf("got the command %q", root.Verdict().Command)
	}
	waits := begin(api.ServiceAPIServer, api.ServiceAPIServer, f)
	waits.Rests = []string{api.ServiceAuth}
	for _, r := range []verdict.Finding{waits.fail(api.Error, StageTCP, catalogue.IdentityMissing, catalogue.Params{}),
		dependent(api.ServiceAPIServer, api.ServiceAPIServer, f, root)} {
		out, _ := verdict.Correlate(time.Now(), nil, []verdict.Finding{root, r}, nil)
		if v := out[1].Verdict(); v.Command != root.Verdict().Command {
			t.Errorf("got the command %q, want the root's: %s", v.Command, v.Fix)
		}
	}
}
