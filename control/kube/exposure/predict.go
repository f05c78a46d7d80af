package exposure

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/predict"
)

// Predict returns the exposure in the form of package predict, for a cluster with the name.
func (e Exposure) Predict(name string) predict.Exposure {
	out := predict.Exposure{Name: name, Gateway: predict.Gateway{Exposure: e.how(), Addresses: addresses(e.Endpoints)}}
	out.Auth.Exposure = e.Auth.Exposure
	if out.Auth.Exposure == "" && e.Type != "" {
		out.Auth.Exposure = predict.ClusterIP // only inside the tunnel
	}
	if e.Auth.TLS != TLSNone {
		out.Auth.TLS = e.Auth.TLS
	}
	if len(e.Auth.Endpoints) > 0 {
		out.Auth.Address = e.Auth.Endpoints[0].Address
	}
	if a := e.APIServer.Address; a != "" {
		out.APIServer = predict.Service{Exposure: predict.Public, Address: a}
		if private(hostOf(a)) {
			out.APIServer.Exposure = predict.Private
		}
	}
	return out
}

// how returns how the gateway is exposed, in package predict's terms.
func (e Exposure) how() string {
	problem := func(code catalogue.Code) bool {
		for _, p := range e.Problems {
			if p.Code == code {
				return true
			}
		}
		return false
	}
	if len(e.Endpoints) == 0 {
		switch {
		case problem(catalogue.NoUDPWay) && e.Type != string(corev1.ServiceTypeExternalName):
			return predict.Ingress
		case e.Type == string(corev1.ServiceTypeExternalName):
			return predict.ClusterIP // the same as not exposed
		}
		return e.Type
	}
	// The source of the best address says more than the type: node ports while a load balancer is
	// pending, a hostPort beside a ClusterIP.
	from := e.Endpoints[0].From
	if strings.HasPrefix(from, "LoadBalancer") || strings.HasPrefix(from, "externalIPs") {
		return predict.LoadBalancer
	}
	return predict.NodePort
}
