package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/auth"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/tui"
)

// guided is one run of `postern up`.
type guided struct {
	*app
	ask  *questions // nil without a terminal
	file string     // of the configuration
	want firstConfig
	// issuer: create a CA that issues identities for the API server.
	issuer bool
	// ticket is the other gateway's; empty means to create one.
	ticket string
	// other is the local name of the other gateway, allow what it may reach; nil means the
	// defaults of invite and join.
	other string
	allow []string
	flags *pflag.FlagSet
}

// described is a flag that describes a part of the configuration.
type described struct {
	flag string
	same func(g *guided, cfg *config.Resolved) bool
}

// describing are these flags, with functions that report whether an existing configuration
// agrees: repeating a command, as provisioning tools do, is no error.
var describing = []described{
	{"name", func(g *guided, cfg *config.Resolved) bool { return g.want.name == cfg.Name }},
	{"state-dir", func(g *guided, cfg *config.Resolved) bool { return g.want.stateDir == cfg.StateDir }},
	{"listen-port", func(g *guided, cfg *config.Resolved) bool { return g.want.port == cfg.ListenPort }},
	{"http-address", func(g *guided, cfg *config.Resolved) bool { return g.want.httpAddress == cfg.HTTPAddress }},
	{"advertise", func(g *guided, cfg *config.Resolved) bool {
		return slices.Equal(g.want.advertise, cfg.Discovery.Advertise)
	}},
	{"stun-servers", func(g *guided, cfg *config.Resolved) bool {
		return slices.Equal(g.want.stunServers, cfg.Discovery.STUNServers)
	}},
	{"api-server", func(g *guided, cfg *config.Resolved) bool {
		s := cfg.Services.APIServer
		return s != nil && s.Address == g.want.apiServer
	}},
	{"api-server-ca", func(_ *guided, cfg *config.Resolved) bool {
		s := cfg.Services.APIServer
		return s != nil && s.CAData != nil
	}},
	{"issuer-ca", func(g *guided, cfg *config.Resolved) bool { return g.issuer == (cfg.Services.LocalCA != nil) }},
}

func (a *app) upCommand() *cobra.Command {
	g := guided{app: a, want: firstConfig{port: config.DefaultListenPort}}
	c := &cobra.Command{
		Use:   "up [TICKET|-]",
		Short: "Configure and start a gateway, then create a ticket or join, step by step",
		Long: "Ask for what a gateway needs, write a commented configuration, check it, and start the gateway (with the " +
			"package's systemd unit if it is installed, otherwise in the background). Then create a ticket for the " +
			"other gateway, or join with its ticket. Values given by flags are not asked for; without a terminal, " +
			"nothing is asked. An existing configuration is used unchanged, and a running gateway keeps running.",
		Example: "  postern up\n  postern up --name cloud --advertise 203.0.113.10:51820 > ticket\n" +
			"  postern up --name edge - < ticket",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				text, err := a.secretArgument(args, "ticket")
				if err != nil {
					return err
				}
				g.ticket = ticket.Find(text)
				if _, err := ticket.Decode(g.ticket); err != nil {
					return usagef("", "up: %w", err)
				}
			}
			if _, asks := terminal(a.stdin); asks {
				g.ask = newQuestions(c.Context(), a.stdin, a.stderr)
			}
			g.flags, g.want.socket = c.Flags(), a.socket
			a.patience = settling
			return g.run(c)
		},
	}
	f := c.Flags()
	f.StringVar(&g.file, "config", or(a.getenv("POSTERN_CONFIG"), defaultConfig), "the configuration `FILE`")
	f.StringVar(&g.want.name, "name", "", "the name by which other clusters know this one")
	f.StringVar(&g.want.stateDir, "state-dir", "", "`directory` for the key, peers and tickets (default "+config.DefaultStateDir+")")
	f.Uint16Var(&g.want.port, "listen-port", config.DefaultListenPort, "UDP `port`; 0 chooses a free one")
	f.StringVar(&g.want.httpAddress, "http-address", "", "`host:port` that serves /metrics, /livez and /readyz")
	f.StringSliceVar(&g.want.advertise, "advertise", nil, "comma-separated `host:port`s to announce")
	f.StringSliceVar(&g.want.stunServers, "stun-servers", nil, "comma-separated `host:port`s of STUN servers")
	f.StringVar(&g.want.apiServer, "api-server", "", "`host:port` of this cluster's API server, which peers may be granted")
	f.StringVar(&g.want.apiServerCA, "api-server-ca", "", "`file` with the CA certificates (PEM) that signed its certificate")
	f.BoolVar(&g.issuer, "issuer-ca", false, "create a CA that issues identities for this API server to peers")
	f.StringVar(&g.other, "peer", "", "`name` of the other gateway here (default: the one it gives itself)")
	f.StringSliceVar(&g.allow, "allow", nil, "local `services` that the other gateway may reach (with a ticket, default auth,apiServer)")
	complete(c, "allow", a.servicesHere)
	return c
}

func (g *guided) run(c *cobra.Command) error {
	ctx := c.Context()
	if g.inCluster() {
		return usagef("in a cluster, install the chart", "up: it starts a gateway on this machine")
	}
	if err := checkOptionalName(g.other); err != nil {
		return err
	}
	file, err := filepath.Abs(g.file)
	if err != nil {
		return usagef("", "up: --config: %w", err)
	}
	g.file = file
	if err := g.want.absolute(); err != nil {
		return err
	}
	g.socket = g.want.socket
	found, err := lookAt(file)
	if err != nil {
		return err
	}
	cfg, err := g.known(found)
	if err != nil {
		return err
	}
	if running := g.running(ctx); running != "" {
		if cfg == nil && slices.ContainsFunc(describing, func(d described) bool { return g.flags.Changed(d.flag) }) {
			return usagef("for a second one, choose --config, --state-dir, --socket and --listen-port",
				"up: the gateway %s already runs at %s, with a different configuration from %s", running, g.socketPath(), file)
		}
		if cfg != nil && cfg.Name != running {
			return usagef("give each gateway a socket of its own; if the name in the file was changed, restart the gateway",
				"up: the gateway at %s is %s, and %s is the configuration of %s", g.socketPath(), running, file, cfg.Name)
		}
		fmt.Fprintf(g.stderr, "The gateway %s is already running.\n", tui.Printable(running))
		return g.peer(c, false)
	}
	if cfg == nil {
		if cfg, err = g.configure(ctx); err != nil {
			return notWritable(err, filepath.Dir(file))
		}
		g.socket = cfg.AdminSocket
	}
	peers, err := g.start(ctx, cfg)
	if err != nil {
		return err
	}
	return g.peer(c, peers == 0)
}

// hidden reports whether a flag or an answer takes the place of an environment variable, in the
// configuration that is written and for the gateway that is started.
func (g *guided) hidden(variable string) bool {
	return slices.ContainsFunc(config.Settings(), func(s config.Setting) bool {
		return s.Env == variable && (g.flags.Changed(s.Flag) || s.Flag == "name" && g.want.name != "")
	})
}

// overrides are those of the gateway that is started.
func (g *guided) overrides() config.Overrides {
	return config.Overrides{LookupEnv: func(variable string) (string, bool) {
		if g.hidden(variable) {
			return "", false
		}
		return os.LookupEnv(variable)
	}}
}

// environ is its environment.
func (g *guided) environ() []string {
	return slices.DeleteFunc(os.Environ(), func(set string) bool {
		variable, _, _ := strings.Cut(set, "=")
		return g.hidden(variable)
	})
}

// known returns the existing configuration, nil if there is none or only the shipped one. It is an
// error if a flag contradicts it.
func (g *guided) known(found existing) (*config.Resolved, error) {
	if found != present {
		return nil, nil
	}
	cfg, err := loadConfig(g.file, g.overrides())
	if err != nil {
		return nil, err
	}
	for _, d := range describing {
		if g.flags.Changed(d.flag) && !d.same(g, cfg) {
			return nil, usagef("edit the file, or leave the flag out to use it as it is", "up: %s already exists, and disagrees with --%s", g.file, d.flag)
		}
	}
	fmt.Fprintf(g.stderr, "The configuration %s already exists and is used as it is.\n", tui.Printable(g.file))
	if g.socket == "" {
		g.socket = cfg.AdminSocket
	}
	return cfg, nil
}

// running returns the name of the running gateway; empty if none answers.
func (g *guided) running(ctx context.Context) string {
	st, err := admin.NewClient(g.socketPath()).Status(ctx)
	if err != nil {
		return ""
	}
	return st.Gateway.Name
}

// configure asks for missing values, and writes the configuration.
func (g *guided) configure(ctx context.Context) (*config.Resolved, error) {
	if g.want.name == "" && g.ask == nil {
		return nil, usagef("--name edge, for example; postern up --help lists the other flags", "up: there is no terminal to ask, and --name is missing")
	}
	if err := g.askConfig(); err != nil {
		return nil, err
	}
	if err := checkOptionalName(g.want.name); err != nil {
		return nil, err
	}
	if g.issuer && g.want.apiServer == "" {
		return nil, usagef("add --api-server HOST:PORT", "up: --issuer-ca creates a CA for an API server, but none is given")
	}
	dir := filepath.Dir(g.file)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	overrides := g.overrides()
	if err := g.want.check(g.file, overrides); err != nil {
		return nil, err
	}
	if err := g.want.prepare(dir, g.issuer, auth.MakeLocalCA, starterOf(ctx, g.file).group()); err != nil {
		return nil, err
	}
	cfg, err := g.want.write(g.file, overrides)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(g.stderr, "Wrote %s.\n", tui.Printable(g.file))
	if g.issuer {
		fmt.Fprintf(g.stderr, "Identities of peers are signed by %s: the API server must trust it besides its own (--client-ca-file).\n", tui.Printable(g.want.issuer.cert))
	}
	return cfg, nil
}

// askConfig asks for the values that were not given as flags.
func (g *guided) askConfig() error {
	if g.ask == nil {
		return nil
	}
	if g.want.name == "" {
		host, _ := os.Hostname()
		name, _, _ := strings.Cut(strings.ToLower(host), ".")
		if api.CheckName(name) != nil {
			name = ""
		}
		if err := g.ask.until("Name by which other clusters know this one", name, &g.want.name, api.CheckName); err != nil {
			return err
		}
	}
	if !g.flags.Changed("api-server") {
		address, ca := apiServerHere()
		if err := g.ask.until("API server of this cluster for peers, host:port, or none", or(address, "none"), &g.want.apiServer, func(s string) error {
			if s == "none" {
				return nil
			}
			return config.CheckDialAddress(s)
		}); err != nil {
			return err
		}
		switch {
		case g.want.apiServer == "none":
			g.want.apiServer = ""
		case g.want.apiServer == address && g.want.apiServerCA == "":
			g.want.apiServerCA = ca
		}
	}
	if g.want.apiServer == "" || g.flags.Changed("issuer-ca") {
		return nil
	}
	var err error
	g.issuer, err = g.ask.yes("Create a CA that issues identities for it to peers", true)
	return err
}

// peer creates a ticket, or joins. Without a terminal, only a fresh gateway, which has no peers,
// gets a ticket unasked.
func (g *guided) peer(c *cobra.Command, fresh bool) error {
	if g.ticket == "" && g.ask != nil {
		var err error
		if g.ticket, err = g.ask.ticket(); err != nil {
			return err
		}
	}
	switch {
	case g.ticket != "":
		return g.join(c, api.JoinRequest{Ticket: g.ticket, Name: g.other, Allow: g.allow, Wait: api.Duration(api.DefaultWait)}, api.DefaultWait, formatText)
	case !fresh && g.ask == nil:
		fmt.Fprintln(g.stderr, "Next: postern invite creates a ticket for another gateway, postern join TICKET joins one, postern status shows the state.")
		return nil
	}
	r := api.InviteRequest{Name: g.other, TTL: api.Duration(ticket.DefaultTTL), Allow: g.allow}
	if !g.flags.Changed("allow") {
		r.Allow = []string{api.ServiceAuth, api.ServiceAPIServer}
	}
	return g.invite(c.Context(), r, formatText, false)
}

// start starts the gateway, waits until it answers, and returns how many peers it has.
func (g *guided) start(ctx context.Context, cfg *config.Resolved) (peers int, err error) {
	if g.socketPath() != cfg.AdminSocket {
		return 0, usagef("edit the file, or leave the flag out", "up: %s has the socket %s, and --socket is %s", g.file, cfg.AdminSocket, g.socket)
	}
	how := starterOf(ctx, g.file)
	ended, err := how.start(ctx, cfg, g.environ())
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case err := <-ended: // nil never ends
			cancel(err)
		case <-ctx.Done():
		}
	}()
	status, err := g.client().Status(ctx)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	if err == nil && status.Gateway.Name != cfg.Name { // somebody else was quicker
		err = fmt.Errorf("the gateway %s answers at %s", status.Gateway.Name, cfg.AdminSocket)
	}
	if err != nil {
		return 0, failedf(how.log(cfg), "up: the gateway did not start: %w", err)
	}
	fmt.Fprintf(g.stderr, "The gateway %s is up: %s.\n", tui.Printable(cfg.Name), tui.Printable(how.how(cfg)))
	return len(status.Peers), nil
}
