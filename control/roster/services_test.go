package roster

import (
	"testing"

	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/forward"
	"github.com/postern-dev/postern/control/mcs"
	"github.com/postern-dev/postern/control/state"
	"github.com/postern-dev/postern/tunnel/peer"
)

// A service of this cluster is granted only by its namespace, also in the options of a peer that
// joined by ticket.
func TestServicesOfTheClusterAreGrantedByNamespace(t *testing.T) {
	var joined state.Peers
	if err := joined.Put(state.Peer{Name: "edge", PublicKey: peer.PublicKey{6}, Allow: []string{"apiServer"}}); err != nil {
		t.Fatal(err)
	}
	r, err := Make(peer.PublicKey{1}, []config.Peer{
		{Name: "cloud", PublicKey: peer.PublicKey{5}, Allow: []string{"web"}, Export: mcs.Patterns{"shop-*", "kube-system"}, Import: mcs.Patterns{"*"}},
		{Name: "edge", Export: mcs.Patterns{"*"}},
	}, joined, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.namespace = "postern"
	for _, c := range []struct {
		peer, service string
		want          bool
	}{
		{"cloud", "shop-a/web:80", true}, {"cloud", "shop-a/db:5432@db-0", true}, {"cloud", "kube-system/dns:53/UDP", true},
		{"cloud", "shop/web:80", false}, {"cloud", "kube-public/web:80", false}, {"cloud", "web", true}, {"cloud", "/web", false},
		{"edge", "shop/web:80", true}, {"edge", "postern/web:80", false}, {"edge", "kube-system/dns:53/UDP", false}, {"edge", "web", false},
		{"nobody", "shop/web:80", false},
	} {
		if got := r.allowed(forward.Peer{Name: c.peer}, c.service); got != c.want {
			t.Errorf("%s reaches %s: %v, want %v", c.peer, c.service, got, c.want)
		}
	}
	if r.allowed(forward.Peer{Name: "edge", OneTime: true}, "shop/web:80") {
		t.Error("the key of a ticket reaches a service of the cluster")
	}
	if m := r.ByName("cloud"); !r.Imports(m, "bank") || r.Imports(m, "postern") || r.Imports(r.ByName("edge"), "bank") {
		t.Error("imports are not those of the peer")
	}
}
