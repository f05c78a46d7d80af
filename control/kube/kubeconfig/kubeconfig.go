// Package kubeconfig selects a command's cluster as kubectl does: by flags with kubectl's names,
// then $KUBECONFIG, then ~/.kube/config, then the pod that the command runs in.
package kubeconfig

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// ErrConfig is returned if the kubeconfig, or the selection in it, cannot be used.
var ErrConfig = errors.New("the kubeconfig cannot be used")

// Flags select a cluster and a user. The zero value means the kubeconfig's current context.
type Flags struct {
	// File is a kubeconfig; empty means $KUBECONFIG, then ~/.kube/config.
	File string
	// ConfigOverrides replace values in it.
	clientcmd.ConfigOverrides
}

// AddTo defines the flags.
func (f *Flags) AddTo(set *pflag.FlagSet) {
	set.StringVar(&f.File, "kubeconfig", "", "use the gateway in the cluster of this kubeconfig `FILE`")
	flag := func(name, short, usage string) clientcmd.FlagInfo {
		return clientcmd.FlagInfo{LongName: name, ShortName: short, Description: usage}
	}
	clientcmd.BindOverrideFlags(&f.ConfigOverrides, set, clientcmd.ConfigOverrideFlags{
		CurrentContext: flag(clientcmd.FlagContext, "", "use the gateway in the cluster of this kubeconfig `context`"),
		ContextOverrideFlags: clientcmd.ContextOverrideFlags{
			ClusterName:  flag(clientcmd.FlagClusterName, "", "`cluster` of the kubeconfig to use instead of the context's"),
			AuthInfoName: flag(clientcmd.FlagAuthInfoName, "", "`user` of the kubeconfig to use instead of the context's"),
			Namespace:    flag(clientcmd.FlagNamespace, "n", "the `namespace` of the gateway in the cluster"),
		},
		AuthOverrideFlags: clientcmd.AuthOverrideFlags{
			Token:             flag(clientcmd.FlagBearerToken, "", "bearer `token` for the API server"),
			Impersonate:       flag(clientcmd.FlagImpersonate, "", "`user` to impersonate in the cluster"),
			ImpersonateGroups: flag(clientcmd.FlagImpersonateGroup, "", "`group` to impersonate in the cluster; may be repeated"),
		},
		Timeout: flag(clientcmd.FlagTimeout, "", "give up on a request to the API server after this `duration`"),
	})
}

// Names returns the completions of a flag: the names in the kubeconfig.
func (f *Flags) Names(flag string) []string {
	_, loader := f.loader()
	raw, err := loader.RawConfig()
	if err != nil {
		return nil
	}
	switch flag {
	case clientcmd.FlagContext:
		return slices.Sorted(maps.Keys(raw.Contexts))
	case clientcmd.FlagClusterName:
		return slices.Sorted(maps.Keys(raw.Clusters))
	case clientcmd.FlagAuthInfoName:
		return slices.Sorted(maps.Keys(raw.AuthInfos))
	}
	return nil
}

// Who returns flags for a command line that say what differs from the context: the cluster and
// the user. The token is left out, since it is secret.
func (f *Flags) Who() []string {
	var out []string
	add := func(flag string, values ...string) {
		for _, v := range values {
			if v != "" {
				out = append(out, "--"+flag, v)
			}
		}
	}
	add(clientcmd.FlagClusterName, f.Context.Cluster)
	add(clientcmd.FlagAuthInfoName, f.Context.AuthInfo)
	add(clientcmd.FlagImpersonate, f.AuthInfo.Impersonate)
	add(clientcmd.FlagImpersonateGroup, f.AuthInfo.ImpersonateGroups...)
	return out
}

// Chosen is the result of flags and kubeconfig.
type Chosen struct {
	Config    *rest.Config
	Namespace string
	// Context is its name; empty in a pod that uses its own cluster.
	Context string
	// Files are the absolute paths of the kubeconfig's files.
	Files []string
}

// Load reads the kubeconfig. It sends no request yet. Its error is an ErrConfig.
func (f *Flags) Load() (*Chosen, error) {
	if f.File != "" {
		if _, err := os.Stat(f.File); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrConfig, f.File, pathless(err))
		}
	}
	rules, loader := f.loader()
	raw, err := loader.RawConfig()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, oneLine(err))
	}
	timeout, err := f.check(&raw)
	if err != nil {
		return nil, err
	}
	config, err := loader.ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, fmt.Errorf("%w: there is none, or it has no current context (name one with --kubeconfig or KUBECONFIG, and --context)", ErrConfig)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrConfig, oneLine(err))
	}
	f.override(config, timeout)
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, oneLine(err))
	}
	context := f.CurrentContext
	if context == "" {
		context = raw.CurrentContext
	}
	return &Chosen{Config: config, Namespace: namespace, Context: context, Files: existing(rules)}, nil
}

func (f *Flags) loader() (*clientcmd.ClientConfigLoadingRules, clientcmd.ClientConfig) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath, rules.WarnIfAllMissing = f.File, false
	return rules, clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &f.ConfigOverrides)
}

// check refuses flags that do not fit the kubeconfig or each other; clientcmd's own messages do
// not say what to do. It returns the limit for one request; 0 means no limit.
func (f *Flags) check(raw *clientcmdapi.Config) (timeout time.Duration, err error) {
	for _, x := range []struct {
		kind, name string
		there      bool
	}{
		{"context", f.CurrentContext, raw.Contexts[f.CurrentContext] != nil},
		{"cluster", f.Context.Cluster, raw.Clusters[f.Context.Cluster] != nil},
		{"user", f.Context.AuthInfo, raw.AuthInfos[f.Context.AuthInfo] != nil},
	} {
		if x.name != "" && !x.there {
			return 0, fmt.Errorf("%w: it has no %s %q (kubectl config get-%ss lists them)", ErrConfig, x.kind, x.name, x.kind)
		}
	}
	if len(f.AuthInfo.ImpersonateGroups) > 0 && f.AuthInfo.Impersonate == "" {
		return 0, fmt.Errorf("%w: --as-group takes a user beside the groups (add --as)", ErrConfig)
	}
	if f.Timeout != "" {
		timeout, err = clientcmd.ParseTimeout(f.Timeout)
	}
	if err != nil || timeout < 0 {
		return 0, fmt.Errorf("%w: --request-timeout %q is no duration (want one such as 10s; 0 is no limit)", ErrConfig, f.Timeout)
	}
	return timeout, nil
}

// override applies the flags that clientcmd ignores: a token if the kubeconfig's user has a token
// file, and impersonation and timeout in a pod that uses its own cluster.
func (f *Flags) override(config *rest.Config, timeout time.Duration) {
	if f.AuthInfo.Token != "" && rest.IsConfigTransportTLS(*config) { // no credentials without TLS
		config.BearerToken, config.BearerTokenFile = f.AuthInfo.Token, ""
	}
	if f.AuthInfo.Impersonate != "" {
		config.Impersonate.UserName, config.Impersonate.Groups = f.AuthInfo.Impersonate, f.AuthInfo.ImpersonateGroups
	}
	config.Timeout = timeout
}

// existing returns the existing files of a kubeconfig.
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

// pathless returns a file's error without its path, which the message already contains.
func pathless(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// oneLine returns an error whose text has no line breaks.
func oneLine(err error) error {
	if !strings.Contains(err.Error(), "\n") {
		return err
	}
	return errors.New(strings.Join(strings.Fields(err.Error()), " "))
}
