package main

import (
	"github.com/postern-dev/postern/control/gateway"
	"github.com/postern-dev/postern/control/kube"
)

// newClusterIssuer makes the issuer of spec.services.auth.issuer.serviceAccount in the
// cluster that this gateway runs in or beside.
func newClusterIssuer(o gateway.ClusterIssuerOptions) (gateway.ClusterIssuer, error) {
	c, err := kube.Connect("postern/" + buildVersion().Version)
	if err != nil {
		return nil, err
	}
	return kube.NewTokenIssuer(c, kube.TokenIssuerOptions{
		Gateway: o.Gateway, Namespace: o.Namespace, TTL: o.TTL, Logger: o.Logger,
	}), nil
}
