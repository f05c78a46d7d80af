// Command bundle is a whole test cluster and its client in one static binary: etcd, every
// Kubernetes component and kubectl, chosen by the name it is called by (a link named
// "etcd", say) or, called by any other name, by its first argument.
//
// It is a module of its own because k8s.io/kubernetes asks for replacements of all its
// staging modules, which must not leak into the product's go.mod. go.mod is for the newest
// version; further files, vVERSION.mod, are for earlier ones.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
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

// component runs with os.Args as its own program would see them and returns the exit
// code. Its command is made only now: making one registers its feature gates.
type component func() int

// components are by the names of their programs.
var components = map[string]component{
	"etcd": func() int {
		etcdmain.Main(os.Args)
		return 0
	},
	"kubectl": func() int {
		kubectlutil.CheckErr(cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand())) // exits on failure
		return 0
	},
	"kube-apiserver":          run(apiserver.NewAPIServerCommand),
	"kube-controller-manager": run(controllers.NewControllerManagerCommand),
	"kube-scheduler":          run(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kube-proxy":              run(proxy.NewProxyCommand),
	"kubelet":                 run(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }),
}

func run(command func() *cobra.Command) component {
	return func() int { return cli.Run(command()) }
}

func main() {
	start, ok := components[filepath.Base(os.Args[0])]
	if !ok && len(os.Args) > 1 {
		os.Args = os.Args[1:]
		start, ok = components[os.Args[0]]
	}
	if !ok {
		fmt.Fprintf(os.Stderr, "usage: bundle {%s} [flags]\n", strings.Join(slices.Sorted(maps.Keys(components)), "|"))
		os.Exit(2)
	}
	os.Exit(start())
}
