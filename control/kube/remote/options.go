package remote

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/postern-dev/postern/control/kube/kubeconfig"
)

// DefaultRelease is the default Helm release of a gateway.
const DefaultRelease = "postern"

// Options select a gateway. The zero value means that of the kubeconfig's current context.
type Options struct {
	// Cluster is its cluster and namespace.
	Cluster kubeconfig.Flags
	// Release is the Helm release; empty means DefaultRelease.
	Release string
	// UserAgent is this program's user agent.
	UserAgent string
	// StdinTaken: a credential plugin may not use standard input for prompts.
	StdinTaken bool
}

// Gateway is a gateway in a cluster. It is safe for concurrent use.
type Gateway struct {
	config    *rest.Config
	client    rest.Interface
	namespace string
	release   string
	// context is its name; empty in a pod of the cluster.
	context string
	// files are the kubeconfig's files.
	files []string

	mu     sync.Mutex
	closed bool
	open   map[*session]struct{}
}

// Open reads the kubeconfig. It sends no request yet. Its error is a [kubeconfig.ErrConfig].
func Open(o Options) (*Gateway, error) {
	chosen, err := o.Cluster.Load()
	if err != nil {
		return nil, err
	}
	g, err := newGateway(chosen.Config, o)
	if err != nil {
		return nil, err
	}
	g.namespace, g.context, g.files = chosen.Namespace, chosen.Context, chosen.Files
	return g, nil
}

// newGateway creates a client that only knows pods.
func newGateway(config *rest.Config, o Options) (*Gateway, error) {
	config = rest.CopyConfig(config)
	config.UserAgent = o.UserAgent
	config.WarningHandlerWithContext = rest.NoWarnings{}
	if config.ExecProvider != nil && o.StdinTaken {
		config.ExecProvider.StdinUnavailable = true
		config.ExecProvider.StdinUnavailableMessage = "a secret is read from it"
	}
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Pod{}, &corev1.PodList{})
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	version := corev1.SchemeGroupVersion
	config.GroupVersion, config.APIPath = &version, "/api"
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.ContentType = runtime.ContentTypeJSON
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", kubeconfig.ErrConfig, oneLine(err))
	}
	release := o.Release
	if release == "" {
		release = DefaultRelease
	}
	return &Gateway{config: config, client: client, release: release, open: map[*session]struct{}{}}, nil
}

// Namespace returns the gateway's namespace.
func (g *Gateway) Namespace() string { return g.namespace }

// Context returns the name of the kubeconfig's context; empty in a pod of the cluster.
func (g *Gateway) Context() string { return g.context }

// Files returns the absolute paths of the kubeconfig's files.
func (g *Gateway) Files() []string { return g.files }

// limit returns the timeout of a request: the operator's, or usual.
func (g *Gateway) limit(usual time.Duration) time.Duration {
	return cmp.Or(g.config.Timeout, usual)
}

// String returns the gateway's name for messages.
func (g *Gateway) String() string {
	where := fmt.Sprintf("release %q in namespace %q", g.release, g.namespace)
	if g.context != "" {
		where += fmt.Sprintf(" of context %q", g.context)
	}
	return where
}

// Close closes all connections, and waits for them.
func (g *Gateway) Close() error {
	g.mu.Lock()
	g.closed = true
	var all []*session
	for s := range g.open {
		all = append(all, s)
	}
	g.mu.Unlock()
	for _, s := range all {
		_ = s.Close()
	}
	return nil
}

func (g *Gateway) hold(s *session) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.open[s] = struct{}{}
	return true
}

func (g *Gateway) forget(s *session) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.open, s)
}

// oneLine returns an error with a text without line breaks.
func oneLine(err error) error {
	if !strings.Contains(err.Error(), "\n") {
		return err
	}
	return errors.New(strings.Join(strings.Fields(err.Error()), " "))
}
