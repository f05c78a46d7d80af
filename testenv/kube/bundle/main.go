// Command bundle is the control plane of a test cluster and its client in one static
// binary: etcd, kube-apiserver and kubectl, chosen by the name it is called by (a link
// named "etcd", say) or, called by any other name, by its first argument.
//
// It is a module of its own because k8s.io/kubernetes asks for replacements of all its
// staging modules, which must not leak into the product's go.mod. Other components join
// by one line in the table below.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics, as the real server has
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
)

// components run with os.Args as their own program would see them; they return the
// exit code.
var components = map[string]func(args []string) int{
	"etcd": func(args []string) int {
		etcdmain.Main(args)
		return 0
	},
	"kube-apiserver": func([]string) int {
		return cli.Run(apiserver.NewAPIServerCommand())
	},
	"kubectl": func([]string) int {
		kubectlutil.CheckErr(cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand())) // exits on failure
		return 0
	},
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
	os.Exit(run(os.Args))
}
