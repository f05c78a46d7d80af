// Command bundle is a whole test cluster and its client in one static binary: etcd, every
// Kubernetes component and kubectl, chosen by the name it is called by (a link named
// "etcd", say) or, called by any other name, by its first argument.
//
// It is a module of its own because k8s.io/kubernetes asks for replacements of all its
// staging modules, which must not leak into the product's go.mod. Other components join
// by one line in the table below.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics, as the real programs have
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// components run with os.Args as their own program would see them; they return the
// exit code. Commands are made only when asked for: making one registers its flags and
// feature gates.
var components = map[string]func() int{
	"etcd": func() int {
		etcdmain.Main(os.Args)
		return 0
	},
	"kubectl": func() int {
		kubectlutil.CheckErr(cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand())) // exits on failure
		return 0
	},
	"kube-apiserver":          component(apiserver.NewAPIServerCommand),
	"kube-controller-manager": component(controllers.NewControllerManagerCommand),
	"kube-scheduler":          component(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kube-proxy":              component(proxy.NewProxyCommand),
	"kubelet":                 component(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }),
}

func component(command func() *cobra.Command) func() int {
	return func() int { return cli.Run(command()) }
}

func main() {
	name := filepath.Base(os.Args[0])
	run, ok := components[name]
	if !ok && len(os.Args) > 1 {
		name, os.Args = os.Args[1], os.Args[1:]
		run, ok = components[name]
	}
	if !ok {
		var names []string
		for n := range components {
			names = append(names, n)
		}
		sort.Strings(names)
		fmt.Fprintf(os.Stderr, "usage: bundle {%s} [flags]\n", strings.Join(names, "|"))
		os.Exit(2)
	}
	os.Exit(run())
}
