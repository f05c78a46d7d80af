package kube

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// ErrNoCluster: the gateway's own API server is unknown.
var ErrNoCluster = errors.New("no cluster to issue in")

const (
	// requestTimeout bounds one request. API servers answer in milliseconds; a slower request is
	// repeated.
	requestTimeout = 5 * time.Second
	// The client's own limits, in requests per second and as a burst: a gateway that starts with a
	// hundred peers should not look like an attack.
	requestRate  = 50
	requestBurst = 100
)

// Cluster is the gateway's own cluster. It is safe for concurrent use.
type Cluster struct {
	core rest.Interface
	http *http.Client
	// config is what every client is made from; it is immutable.
	config *rest.Config
	// limit is the operator's for one request; 0 means none.
	limit time.Duration
	// namespace is the pod's own, or the kubeconfig context's.
	namespace string
	// server is the API server's URL, for messages.
	server string
}

// kubeconfigVariable names kubeconfig files, as for kubectl.
const kubeconfigVariable = "KUBECONFIG"

// Connect finds the gateway's own API server: the one of the cluster it runs in, else the one of
// the kubeconfig in $KUBECONFIG. It sends no request yet. An [ErrNoCluster] says what to do.
func Connect(userAgent string) (*Cluster, error) {
	var namespace string
	config, err := rest.InClusterConfig()
	switch {
	case errors.Is(err, rest.ErrNotInCluster):
		config, namespace, err = fromKubeconfig(os.Getenv(kubeconfigVariable))
	case err != nil:
		err = fmt.Errorf("%w: this is a pod without a ServiceAccount's token: %w (set automountServiceAccountToken: true in the pod's spec)", ErrNoCluster, err)
	default:
		namespace, err = podNamespace(namespaceFile)
	}
	if err != nil {
		return nil, err
	}
	config.UserAgent, config.Timeout = userAgent, requestTimeout
	config.QPS, config.Burst = requestRate, requestBurst
	config.WarningHandlerWithContext = rest.NoWarnings{}
	return newCluster(config, namespace)
}

// namespaceFile is where the kubelet writes a pod's namespace.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

func podNamespace(file string) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("%w: this pod's namespace is not known: %w (set automountServiceAccountToken: true in the pod's spec)", ErrNoCluster, err)
	}
	return strings.TrimSpace(string(b)), nil
}

// fromKubeconfig reads the file or files in $KUBECONFIG.
func fromKubeconfig(variable string) (config *rest.Config, namespace string, err error) {
	if variable == "" {
		return nil, "", fmt.Errorf("%w: this is no pod, and %s is not set (run the gateway in the cluster, set %s for a gateway beside it, or use issuer.localCA)",
			ErrNoCluster, kubeconfigVariable, kubeconfigVariable)
	}
	files := filepath.SplitList(variable)
	for _, f := range files {
		if _, err := os.Stat(f); err != nil {
			return nil, "", fmt.Errorf("%w: %s names a file that cannot be read: %w", ErrNoCluster, kubeconfigVariable, err)
		}
	}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{Precedence: files}, &clientcmd.ConfigOverrides{})
	if config, err = loader.ClientConfig(); err == nil {
		namespace, _, err = loader.Namespace()
	}
	if err != nil {
		return nil, "", fmt.Errorf("%w: the kubeconfig %s: %w", ErrNoCluster, variable, err)
	}
	return config, namespace, nil
}

// newCluster creates a client that knows only the types that are needed: client-go's own scheme
// includes all of Kubernetes, and costs megabytes.
func newCluster(config *rest.Config, namespace string) (*Cluster, error) {
	base := rest.CopyConfig(config)
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.ServiceAccount{}, &corev1.ServiceAccountList{})
	scheme.AddKnownTypes(authenticationv1.SchemeGroupVersion, &authenticationv1.TokenRequest{})
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	metav1.AddToGroupVersion(scheme, authenticationv1.SchemeGroupVersion)
	version := corev1.SchemeGroupVersion
	config.GroupVersion, config.APIPath = &version, "/api"
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.ContentType = runtime.ContentTypeJSON
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoCluster, err)
	}
	core, err := rest.RESTClientForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoCluster, err)
	}
	return &Cluster{core: core, http: client, config: base, namespace: namespace, server: shown(config.Host)}, nil
}

// Namespace returns the gateway's own: that of its pod, or of the kubeconfig's context.
func (c *Cluster) Namespace() string { return c.namespace }

// Group returns a client for the given types of one API group, including their lists. It has no
// timeout except the operator's, since a watch may take any time: every request ends with its
// context.
func (c *Cluster) Group(version schema.GroupVersion, objects ...runtime.Object) (rest.Interface, error) {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(version, objects...)
	metav1.AddToGroupVersion(scheme, version)
	config := rest.CopyConfig(c.config)
	config.Timeout = c.limit
	config.GroupVersion, config.APIPath = &version, "/apis"
	if version.Group == corev1.GroupName {
		config.APIPath = "/api"
	}
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	if config.ContentType == "" {
		config.ContentType = runtime.ContentTypeJSON
	}
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for %s: %w", version, err)
	}
	return client, nil
}

// WithRate returns the same cluster with other limits, for callers with more requests than the rest
// of a gateway: per second, and as a burst.
func (c *Cluster) WithRate(rate float32, burst int) *Cluster {
	next := *c
	next.config = rest.CopyConfig(c.config)
	next.config.QPS, next.config.Burst = rate, burst
	return &next
}

// WithProtobuf returns the same cluster, whose clients of Kubernetes' own kinds get objects as its
// components do: what the API server encodes for these is encoded once for all.
func (c *Cluster) WithProtobuf() *Cluster {
	next := *c
	next.config = rest.CopyConfig(c.config)
	next.config.ContentType = runtime.ContentTypeProtobuf
	return &next
}

// shown returns a URL for a message, without a password.
func shown(host string) string {
	u, err := url.Parse(host)
	if err != nil {
		return "the API server"
	}
	return strings.TrimRight(u.Redacted(), "/")
}

// close closes idle connections.
func (c *Cluster) close() { c.http.CloseIdleConnections() }
