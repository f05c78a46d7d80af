package kube

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Context is a cluster as kubectl's flags name it.
type Context struct {
	// Kubeconfig is a file; empty means $KUBECONFIG, then ~/.kube/config, then the pod that
	// this runs in.
	Kubeconfig string
	// Context in it; empty means its current one.
	Context string
	// Namespace; empty means the context's.
	Namespace string
}

// ConnectContext finds the API server that an operator's kubeconfig leads to. Nothing is
// asked yet. Its error is an [ErrNoCluster].
func ConnectContext(x Context, userAgent string) (*Cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath, rules.WarnIfAllMissing = x.Kubeconfig, false
	overrides := &clientcmd.ConfigOverrides{CurrentContext: x.Context}
	overrides.Context.Namespace = x.Namespace
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("%w: the kubeconfig's context %q: %w (kubectl config get-contexts lists them)", ErrNoCluster, x.Context, err)
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, fmt.Errorf("%w: the kubeconfig's context %q: %w", ErrNoCluster, x.Context, err)
	}
	config.UserAgent, config.Timeout = userAgent, requestTimeout
	config.QPS, config.Burst = requestRate, requestBurst
	config.WarningHandlerWithContext = rest.NoWarnings{}
	return newCluster(config, namespace)
}

// Server is the API server's URL as the kubeconfig or the pod has it, without a password.
func (c *Cluster) Server() string { return c.server }
