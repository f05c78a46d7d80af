package exposure

import (
	"strings"
	"testing"

	"github.com/postern-dev/postern/control/config"
)

// cluster-info is readable by many, and in some clusters writable: any content results in an
// address or an error.
func FuzzClusterInfo(f *testing.F) {
	for _, server := range []string{"10.0.0.5:6443", "api.example.net", "[2001:db8::5]:6443", ":0", "a b", "%zz"} {
		f.Add(strings.Replace(clusterInfo, "SERVER", server, 1))
	}
	f.Add("{")
	f.Add("clusters: [{name: x, cluster: {server: 'http://[::1%25lo]'}}]")
	f.Fuzz(func(t *testing.T, text string) {
		e, err := ofClusterInfo(text)
		if err != nil {
			return
		}
		if err := config.CheckDialAddress(e.Address); err != nil || e.From == "" {
			t.Errorf("got %+v %v", e, err)
		}
	})
}
