package remote

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// DefaultRelease is the Helm release that a gateway is installed as unless told.
const DefaultRelease = "postern"

// ErrConfig: the kubeconfig, or what was chosen in it, cannot be used.
var ErrConfig = errors.New("the kubeconfig cannot be used")

// Options say which gateway, as kubectl's flags of these names do.
type Options struct {
	// Kubeconfig is a file; empty means $KUBECONFIG, then ~/.kube/config, then the pod that
	// this runs in.
	Kubeconfig string
	// Context in it; empty means its current one.
	Context string
	// Namespace of the gateway; empty means the context's.
	Namespace string
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

// Open reads the kubeconfig. Nothing is asked yet. Its error is an ErrConfig.
func Open(o Options) (*Gateway, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	if o.Kubeconfig != "" {
		if _, err := os.Stat(o.Kubeconfig); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrConfig, o.Kubeconfig, pathless(err))
		}
		rules.ExplicitPath = o.Kubeconfig
	}
	rules.WarnIfAllMissing = false
	overrides := &clientcmd.ConfigOverrides{CurrentContext: o.Context}
	overrides.Context.Namespace = o.Namespace
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	raw, err := loader.RawConfig()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, oneLine(err))
	}
	if _, ok := raw.Contexts[o.Context]; !ok && o.Context != "" {
		return nil, fmt.Errorf("%w: it has no context %q (kubectl config get-contexts lists them)", ErrConfig, o.Context)
	}
	config, err := loader.ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, fmt.Errorf("%w: there is none, or it has no current context (name one with --kubeconfig or KUBECONFIG, and --context)", ErrConfig)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrConfig, oneLine(err))
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, oneLine(err))
	}
	g, err := newGateway(config, o)
	if err != nil {
		return nil, err
	}
	g.namespace, g.context, g.files = namespace, o.Context, existing(rules)
	if g.context == "" {
		g.context = raw.CurrentContext
	}
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
		return nil, fmt.Errorf("%w: %w", ErrConfig, oneLine(err))
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

// existing are the files of a kubeconfig that are there.
func existing(rules *clientcmd.ClientConfigLoadingRules) []string {
	list := rules.GetLoadingPrecedence()
	if rules.ExplicitPath != "" {
		list = []string{rules.ExplicitPath}
	}
	var out []string
	for _, f := range list {
		if _, err := os.Stat(f); err != nil {
			continue
		}
		if abs, err := filepath.Abs(f); err == nil {
			out = append(out, abs)
		}
	}
	return out
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

// pathless is an error of a file without its path, which the message names already.
func pathless(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// oneLine is an error whose text has no line breaks.
func oneLine(err error) error {
	if !strings.Contains(err.Error(), "\n") {
		return err
	}
	return errors.New(strings.Join(strings.Fields(err.Error()), " "))
}
