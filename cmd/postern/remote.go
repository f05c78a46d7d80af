package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/kube/kubeconfig"
	"github.com/postern-dev/postern/control/kube/remote"
	"github.com/postern-dev/postern/tunnel/foreign"
)

// inCluster selects a gateway in a cluster, with flags named as kubectl's.
type inCluster struct {
	flags   *pflag.FlagSet // of chosen and release
	chosen  kubeconfig.Flags
	release string
	// plugin: kubectl runs this program, so it uses a gateway in a cluster unless a socket is
	// given.
	plugin bool

	mu   sync.Mutex
	held *remote.Gateway
}

// reaching adds the flags to commands that use a gateway.
func (a *app) reaching(commands ...*cobra.Command) []*cobra.Command {
	c := &a.cluster
	first := c.flags == nil
	if first {
		c.flags = pflag.NewFlagSet("cluster", pflag.ContinueOnError)
		c.chosen.AddTo(c.flags)
		c.flags.StringVar(&c.release, "release", "", "the gateway's Helm `release` (default "+remote.DefaultRelease+")")
	}
	for _, x := range commands {
		x.PersistentFlags().AddFlagSet(c.flags)
	}
	if !first {
		return commands
	}
	for _, name := range []string{"context", "cluster", "user"} { // of all commands: the flags are the same
		complete(commands[0], name, listed(func() []string { return c.chosen.Names(name) }, cobra.ShellCompDirectiveNoFileComp))
	}
	return commands
}

// inCluster reports whether a gateway in a cluster is used, instead of a socket.
func (a *app) inCluster() bool {
	c := &a.cluster
	given := false
	if c.flags != nil {
		c.flags.VisitAll(func(f *pflag.Flag) { given = given || f.Value.String() != f.DefValue })
	}
	return given || c.plugin && a.socket == "" && a.getenv("POSTERN_SOCKET") == ""
}

// onePlace refuses a command line that selects two gateways.
func (a *app) onePlace() error {
	if a.socket != "" && a.inCluster() {
		return usagef("give either", "--socket names a gateway on this machine, and --context, --kubeconfig, --release and similar flags one in a cluster")
	}
	return nil
}

// place returns the socket in use; empty for a gateway in a cluster.
func (a *app) place() string {
	if a.inCluster() {
		return ""
	}
	return a.socketPath()
}

// client returns the client of the selected gateway.
func (a *app) client() *admin.Client {
	if a.asked == nil && a.inCluster() {
		a.asked = admin.NewClientVia("the gateway in the cluster", func(ctx context.Context) (net.Conn, error) {
			g, err := a.gatewayInCluster()
			if err != nil {
				return nil, err
			}
			return g.Dial(ctx)
		})
	}
	if a.asked == nil {
		a.asked = admin.NewPatientClient(a.socketPath(), a.patience)
	}
	return a.asked
}

// gatewayInCluster reads the kubeconfig once.
func (a *app) gatewayInCluster() (*remote.Gateway, error) {
	c := &a.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held != nil {
		return c.held, nil
	}
	g, err := remote.Open(a.clusterOptions())
	c.held = g
	return g, err
}

// clusterOptions returns the options for the cluster that the flags select.
func (a *app) clusterOptions() remote.Options {
	_, interactive := terminal(a.stdin)
	return remote.Options{
		Cluster: a.cluster.chosen, Release: a.cluster.release, UserAgent: "postern/" + buildVersion().Version, StdinTaken: !interactive,
	}
}

// close closes what the command kept open.
func (a *app) close() {
	if a.asked != nil {
		a.asked.Close()
	}
	a.cluster.mu.Lock()
	defer a.cluster.mu.Unlock()
	if a.cluster.held != nil {
		_ = a.cluster.held.Close()
	}
}

// forwarded adapts the data about a listener of a gateway in a cluster to this host: the listener
// is in the pod, to which kubectl forwards a port.
func (a *app) forwarded(ctx context.Context, k *api.Kubeconfig, plugin *execPlugin) error {
	g, err := a.gatewayInCluster()
	if err != nil {
		return err
	}
	if k.Direct {
		a.fromHere(g, plugin)
		return nil
	}
	target, err := g.Find(ctx)
	if err != nil {
		return err
	}
	u, err := url.Parse(k.Server)
	if err != nil {
		return fmt.Errorf("the gateway's listener %q is not a URL: %w", k.Server, err)
	}
	from, port := "pod/"+target.Pod, u.Port()
	if _, err := netip.ParseAddr(u.Hostname()); err != nil { // a Service
		name, _, _ := strings.Cut(u.Hostname(), ".")
		from = "service/" + name
	}
	local := port
	if port == fmt.Sprint(api.PortAPIServer) { // a node's own API server has that one
		local = "7443"
	}
	k.Server = "https://" + net.JoinHostPort("127.0.0.1", local)
	kubectl := []string{"kubectl"}
	if a.cluster.chosen.File != "" {
		file, err := filepath.Abs(a.cluster.chosen.File)
		if err != nil {
			return fmt.Errorf("find the path of the kubeconfig: %w", err)
		}
		kubectl = append(kubectl, "--kubeconfig", file)
	}
	if name := g.Context(); name != "" {
		kubectl = append(kubectl, "--context", name)
	}
	kubectl = append(kubectl, a.cluster.chosen.Who()...)
	a.fromHere(g, plugin)
	kubectl = append(kubectl, "-n", g.Namespace(), "port-forward", from, local+":"+port)
	for i, word := range kubectl { // a kubeconfig may name a context as it likes
		if !foreign.Bare(strings.TrimLeft(word, "-")) {
			kubectl[i] = foreign.Of(word).Word()
		}
	}
	fmt.Fprintf(a.stderr, "postern: the listener is in the cluster; while the kubeconfig is used, keep this running: %s\n", strings.Join(kubectl, " "))
	return nil
}

// fromHere makes the credential plugin find the same gateway.
func (a *app) fromHere(g *remote.Gateway, plugin *execPlugin) {
	if name := g.Context(); name != "" {
		plugin.Args = append(plugin.Args, "--context", name)
	}
	plugin.Args = append(plugin.Args, "--namespace", g.Namespace())
	plugin.Args = append(plugin.Args, a.cluster.chosen.Who()...)
	if a.cluster.chosen.AuthInfo.Token != "" {
		fmt.Fprintln(a.stderr, "postern: the file leaves out --token, a secret; its users need the credentials of the cluster's kubeconfig")
	}
	if a.cluster.release != "" {
		plugin.Args = append(plugin.Args, "--release", a.cluster.release)
	}
	if files := g.Files(); len(files) > 0 { // kubectl may be told of the new file by the same variable
		plugin.Env = []execVariable{{"KUBECONFIG", strings.Join(files, string(filepath.ListSeparator))}}
	}
}

// asCalled reports whether kubectl runs the program, according to its name, and returns its
// arguments. kubectl runs kubectl_complete-NAME to complete the command line of plugin NAME.
func asCalled(argv []string) (plugin bool, args []string) {
	name := argv[0][strings.LastIndexAny(argv[0], `/\`)+1:]
	if strings.HasPrefix(name, "kubectl_complete-") {
		return true, append([]string{cobra.ShellCompRequestCmd}, argv[1:]...)
	}
	return strings.HasPrefix(name, "kubectl-"), argv[1:]
}

// pluginName is what users type if kubectl runs this program.
const pluginName = "kubectl postern"

// typed matches this program's name in commands in texts: in quotes, at the beginning of an
// example, or after a shell's command separator.
var typed = regexp.MustCompile("(?m)(`|^ *|[|&;<(] *)postern ")

// asPlugin makes help show what users of the plugin type.
func asPlugin(root *cobra.Command) {
	if root.Annotations == nil {
		root.Annotations = map[string]string{}
	}
	root.Annotations[cobra.CommandDisplayNameAnnotation] = pluginName
	var rename func(c *cobra.Command)
	rename = func(c *cobra.Command) {
		c.Example = typed.ReplaceAllString(c.Example, "${1}"+pluginName+" ")
		c.Long = strings.ReplaceAll(c.Long, "`postern ", "`"+pluginName+" ")
		for _, sub := range c.Commands() {
			rename(sub)
		}
	}
	rename(root)
}
