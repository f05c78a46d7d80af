package kube

import (
	"k8s.io/client-go/rest"

	"github.com/postern-dev/postern/control/kube/kubeconfig"
)

// ConnectContext finds the API server that an operator's flags and kubeconfig lead to. Nothing
// is asked yet. Its error is a [kubeconfig.ErrConfig].
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

// Server is the API server's URL as the kubeconfig or the pod has it, without a password.
func (c *Cluster) Server() string { return c.server }
