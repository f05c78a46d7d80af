// Command coredns is CoreDNS with the plugins that clusters use it with, of one version for the
// tests. It is a module of its own, so that its dependencies are none of the product's.
package main

import (
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/log"

	"github.com/coredns/coredns/coremain"
)

func main() { coremain.Run() }
