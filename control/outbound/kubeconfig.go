package outbound

import (
	"context"
	"fmt"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/exchange"
	"github.com/postern-dev/postern/control/roster"
)

// Kubeconfig returns what is needed to write a kubeconfig for the peer's API server.
func (s *Services) Kubeconfig(_ context.Context, name string) (api.Kubeconfig, error) {
	m, err := s.o.Peers.Member(name)
	if err != nil {
		return api.Kubeconfig{}, err
	}
	if m.Mode == api.ModeOutOfBand {
		return directKubeconfig(m), nil
	}
	k := api.Kubeconfig{Peer: name}
	for _, l := range s.out.Locals() {
		if l.Peer != name || l.Service != api.ServiceAPIServer {
			continue
		}
		if l.Err != nil {
			return api.Kubeconfig{}, admin.Conflict(fmt.Sprintf("the local listener for %s's API server is not there: %v", name, l.Err),
				fmt.Sprintf("free the address, or choose another: postern peer local %s apiServer=127.0.0.1:PORT", name))
		}
		k.Server = "https://" + l.Address
	}
	if k.Server == "" {
		return api.Kubeconfig{}, admin.Conflict(fmt.Sprintf("no local listener leads to %s's API server", name), listenerHint(m, s.o.Peers.Config().File))
	}
	h, ok := s.o.Exchange.Hello(m.Key)
	if ok {
		a := exchange.APIServerOf(h.Hello)
		k.ServerName, k.CAData = a.ServerName, a.CAData
	} else {
		o := s.o.Store.Observed(m.Key)
		k.ServerName, k.CAData = o.ServerName, o.CAData
		if o.Offers == nil {
			return api.Kubeconfig{}, admin.Soon(fmt.Sprintf("peer %s has not answered yet, so its API server's name and CA are not known", name),
				"see `postern status "+name+"`")
		}
	}
	if k.ServerName == "" {
		k.ServerName = catalogue.DefaultServerName
	}
	return k, nil
}

func listenerHint(m *roster.Member, file string) string {
	if m.FromFile {
		return fmt.Sprintf("set local.apiServer of peer %s in %s and send the gateway SIGHUP", m.Name, file)
	}
	return fmt.Sprintf("postern peer local %s apiServer=127.0.0.1:7443", m.Name)
}

// directKubeconfig is Kubeconfig for an API server that is reached outside the tunnel.
func directKubeconfig(m *roster.Member) api.Kubeconfig {
	return api.Kubeconfig{Peer: m.Name, Server: m.Direct.APIServerURL, CAData: string(m.Direct.CA), Direct: true}
}
