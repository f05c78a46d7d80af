package kube

import (
	"k8s.io/client-go/rest"

	"github.com/postern-dev/postern/control/kube/kubeconfig"
)

// ConnectContext finds the API server of an operator's flags and kubeconfig. It sends no request
// yet. Its error is a [kubeconfig.ErrConfig].
func ConnectContext(f kubeconfig.Flags, userAgent string) (*Cluster, error) {
	chosen, err := f.Load()
	if err != nil {
		return nil, err
	}
	config, limit := chosen.Config, chosen.Config.Timeout
	config.UserAgent = userAgent
	if limit == 0 {
		config.Timeout = requestTimeout
	}
	config.QPS, config.Burst = requestRate, requestBurst
	config.WarningHandlerWithContext = rest.NoWarnings{}
	c, err := newCluster(config, chosen.Namespace)
	if err != nil {
		return nil, err
	}
	c.limit = limit
	return c, nil
}

// Server returns the API server's URL from the kubeconfig or the pod, without a password.
func (c *Cluster) Server() string { return c.server }
