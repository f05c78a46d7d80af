package gateway_test

import (
	"fmt"
	"testing"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/mcs"
)

// A service that cannot be offered inside the tunnel is not told, and says so; the others are.
func TestAServiceOfAClusterThatCannotBeOffered(t *testing.T) {
	w := newWorld(t, clusters)
	w.peer()
	w.trade(w.Cloud, w.Edge, "shop")
	p := w.newPod("web")
	one, other, third := export("shop", "one", true, p), export("shop", "other", true, p), export("shop", "third", true, p)
	other.UID = one.UID // so that they want the same ports
	w.Edge.Gateway.Services().SetExports(nil)
	w.Edge.Gateway.Services().SetNamespaces([]string{"shop"})
	w.Cloud.Gateway.Services().SetExports([]mcs.Export{one, other, third})
	st, _ := w.Cloud.Gateway.Services().State()
	if len(st.Problems) != 1 || st.Problems[0].Code != catalogue.ExportRefused || st.Problems[0].Detail == "" {
		t.Fatalf("the problems are %+v", st.Problems)
	}
	w.answers(w.imported(w.Edge, "cloud", "shop/third"))
	refused := st.Problems[0].Name.String()
	offered := map[string]string{one.Name.String(): other.Name.String(), other.Name.String(): one.Name.String()}[refused]
	if who := w.answers(w.imported(w.Edge, "cloud", offered)); who != "web" {
		t.Errorf("%s answers", who)
	}
	if st, _ := w.Edge.Gateway.Services().State(); len(st.Imports) != 2 {
		t.Errorf("edge imports %+v", st.Imports)
	}
}

// A service that is granted to nobody is offered when it is.
func TestAServiceOfAClusterThatIsGrantedLater(t *testing.T) {
	w := newWorld(t, clusters)
	w.peer()
	w.trade(w.Cloud, w.Edge, "bank")
	w.Edge.Gateway.Services().SetExports(nil)
	w.Edge.Gateway.Services().SetNamespaces([]string{"shop"})
	w.Cloud.Gateway.Services().SetExports([]mcs.Export{export("shop", "web", true, w.newPod("web"))})
	l, err := w.Cloud.Gateway.ClusterServices(w.ctx, "")
	if err != nil || len(l.Services) != 1 || l.Services[0].State != api.ServiceUngranted {
		t.Fatal(fmt.Sprintf("%+v", l), err)
	}
	// The importer's grant may come after it was told, and before.
	w.mustEdit(w.Cloud, func(g *api.GatewaySpec) {
		g.Peers = []api.Peer{{Name: "edge", Services: &api.PeerServices{Export: []string{"shop"}, Import: []string{"shop"}}}}
	})
	w.await("edge hears of it", func() string {
		l, err := w.Edge.Gateway.ClusterServices(w.ctx, "cloud")
		if err != nil || len(l.Services) != 1 || l.Services[0].Code != string(catalogue.ServiceNotWanted) {
			return fmt.Sprint(l, err)
		}
		return ""
	})
	w.trade(w.Cloud, w.Edge, "shop")
	if who := w.answers(w.imported(w.Edge, "cloud", "shop/web")); who != "web" {
		t.Errorf("%s answers", who)
	}
}
