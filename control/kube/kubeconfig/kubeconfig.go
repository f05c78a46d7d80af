// Package kubeconfig finds the cluster that a command is about as kubectl does: by flags of
// kubectl's names, then $KUBECONFIG, then ~/.kube/config, then the pod that the command runs in.
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

// ErrConfig: the kubeconfig, or what was chosen in it, cannot be used.
var ErrConfig = errors.New("the kubeconfig cannot be used")

// Flags choose a cluster, and who asks it. The zero value chooses what the kubeconfig says.
type Flags struct {
	// File is a kubeconfig; empty means $KUBECONFIG, then ~/.kube/config.
	File string
	// ConfigOverrides replace what is in it.
	clientcmd.ConfigOverrides
}

// AddTo defines the flags.
func (f *Flags) AddTo(set *pflag.FlagSet) {
	set.StringVar(&f.File, "kubeconfig", "", "ask the gateway in the cluster of this kubeconfig `FILE`")
	flag := func(name, short, usage string) clientcmd.FlagInfo {
		return clientcmd.FlagInfo{LongName: name, ShortName: short, Description: usage}
	}
	clientcmd.BindOverrideFlags(&f.ConfigOverrides, set, clientcmd.ConfigOverrideFlags{
		CurrentContext: flag(clientcmd.FlagContext, "", "ask the gateway in the cluster of this kubeconfig `context`"),
		ContextOverrideFlags: clientcmd.ContextOverrideFlags{
			ClusterName:  flag(clientcmd.FlagClusterName, "", "the kubeconfig's `cluster` to ask instead of the context's"),
			AuthInfoName: flag(clientcmd.FlagAuthInfoName, "", "the kubeconfig's `user` to ask as instead of the context's"),
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

// Names are the words that complete one of the flags: those of the kubeconfig.
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

// Who are the flags again, as words of a command line, that say what differs from the context:
// the cluster, and who asks. The token is not among them: it is a secret.
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

// Chosen is what flags and kubeconfig lead to.
type Chosen struct {
	Config    *rest.Config
	Namespace string
	// Context is its name; empty when a pod asks its own cluster.
	Context string
	// Files are the absolute paths of those that the kubeconfig was read from.
	Files []string
}

// Load reads the kubeconfig. Nothing is asked yet. Its error is an ErrConfig.
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
// not say what to do. It gives the time that one request may take; 0 is no limit.
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

// override applies the flags that clientcmd ignores: a token while the kubeconfig's user has a
// file with one, and whom to impersonate and how long to wait in a pod that asks its own cluster.
func (f *Flags) override(config *rest.Config, timeout time.Duration) {
	if f.AuthInfo.Token != "" && rest.IsConfigTransportTLS(*config) { // no credentials in the clear
		config.BearerToken, config.BearerTokenFile = f.AuthInfo.Token, ""
	}
	if f.AuthInfo.Impersonate != "" {
		config.Impersonate.UserName, config.Impersonate.Groups = f.AuthInfo.Impersonate, f.AuthInfo.ImpersonateGroups
	}
	config.Timeout = timeout
}

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
