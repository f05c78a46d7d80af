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

// DefaultRelease is the gateway's Helm release by default.
const DefaultRelease = "postern"

// Options say which gateway. The zero value is that of the kubeconfig's current context.
type Options struct {
	// Cluster is where it is, and in which namespace.
	Cluster kubeconfig.Flags
	// Release is the Helm release; empty means DefaultRelease.
	Release string
	// UserAgent is what this program calls itself.
	UserAgent string
	// StdinTaken: standard input is not for a credential plugin to ask at.
	StdinTaken bool
}

// Gateway is a gateway in a cluster. It is safe for concurrent use.
type Gateway struct {
	config    *rest.Config
	client    rest.Interface
	namespace string
	release   string
	// context is its name; empty when a pod asks its own cluster.
	context string
	// files are those that the kubeconfig was read from.
	files []string

	mu     sync.Mutex
	closed bool
	open   map[*session]struct{}
}

// Open reads the kubeconfig. Nothing is asked yet. Its error is a [kubeconfig.ErrConfig].
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

// newGateway makes a client that knows of pods and nothing else.
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

// Namespace is where the gateway is looked for.
func (g *Gateway) Namespace() string { return g.namespace }

// Context is the name of the kubeconfig's context; empty in a pod of the cluster.
func (g *Gateway) Context() string { return g.context }

// Files are the absolute paths of those that the kubeconfig was read from.
func (g *Gateway) Files() []string { return g.files }

// limit is how long a request may take that takes at most usual unless the operator says
// otherwise.
func (g *Gateway) limit(usual time.Duration) time.Duration {
	return cmp.Or(g.config.Timeout, usual)
}

// String names the gateway in messages.
func (g *Gateway) String() string {
	where := fmt.Sprintf("release %q in namespace %q", g.release, g.namespace)
	if g.context != "" {
		where += fmt.Sprintf(" of context %q", g.context)
	}
	return where
}

// Close ends all connections, and waits for them.
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

// oneLine is an error whose text has no line breaks.
func oneLine(err error) error {
	if !strings.Contains(err.Error(), "\n") {
		return err
	}
	return errors.New(strings.Join(strings.Fields(err.Error()), " "))
}
