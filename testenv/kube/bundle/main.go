// Command bundle is a whole test cluster and its client in one static binary: etcd, every
// Kubernetes component and kubectl, chosen by the name it is called by (a link named
// "etcd", say) or, called by any other name, by its first argument. The build tag
// "controlplane" leaves out what only a node needs.
//
// It is a module of its own because k8s.io/kubernetes asks for replacements of all its
// staging modules, which must not leak into the product's go.mod. go.mod is for the
// version that nodes run; further files, vVERSION.mod, are for other versions.
package main

import (
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
)

// component runs with os.Args as its own program would see them and returns the exit
// code. Its command is made only now: making one registers its feature gates.
type component func() int

// controlPlane are the components of every bundle.
var controlPlane = map[string]component{
	"etcd": func() int {
		etcdmain.Main(os.Args)
		return 0
	},
	"kubectl": func() int {
		kubectlutil.CheckErr(cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand())) // exits on failure
		return 0
	},
	"kube-apiserver": run(apiserver.NewAPIServerCommand),
}

func run(command func() *cobra.Command) component {
	return func() int { return cli.Run(command()) }
}

func main() {
	components := maps.Clone(controlPlane)
	maps.Copy(components, nodeComponents)
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
