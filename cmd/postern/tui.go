package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/kube/remote"
	"github.com/postern-dev/postern/tui"
	"github.com/postern-dev/postern/tui/screen"
	"github.com/postern-dev/postern/tui/theme"
)

// Values of --graph.
const (
	graphBraille = "braille"
	graphBlock   = "block"
	graphASCII   = "ascii"
)

func (a *app) tuiCommand() *cobra.Command {
	var (
		once, readOnly bool
		plain, mouse   bool
		graph, colours string
		gateways       []string
	)
	c := &cobra.Command{
		Use: "tui", SuggestFor: []string{"top", "watch", "ui", "monitor"},
		Short: "Watch the gateway on a screen: peers, checks, throughput, flows, log",
		Long: "Show the gateway and its peers on a live screen: what works in each direction, what fails and why, how " +
			"to fix it, throughput, flows and the log. Press ? for the keys, or a to act on a peer: the screen shows " +
			"the action and asks you to confirm it first. If stdout is not a terminal, or with --once, print the " +
			"table of `postern status` instead.",
		Example: "  postern tui\n  postern tui --graph ascii\n  postern tui --gateways edge,cloud\n  postern tui --plain",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := oneOf("--graph", graph, graphBraille, graphBlock, graphASCII); err != nil {
				return err
			}
			if _, err := a.themes().Load(colours); err != nil {
				return usagef("tui/README.md has an example", "--theme: %w", err)
			}
			if !plain && !once { // the terminal would be left without echo
				defer a.tidies()()
			}
			if len(gateways) > 0 {
				if once {
					return usagef("give either", "--once prints the table of one gateway, and --gateways shows several")
				}
				if plain {
					return usagef("run one for each", "--plain follows one gateway, and --gateways shows several")
				}
				return a.fleet(c.Context(), gateways, screen.Options{Graph: graph, TrueColor: tui.TrueColor(a.getenv), Theme: colours, Themes: a.themes(), Mouse: mouse}, readOnly)
			}
			if plain {
				if once {
					return usagef("leave one out", "--plain keeps running, and --once prints one table")
				}
				return a.follow(c.Context())
			}
			if _, ok := terminal(a.stdout); once || !ok {
				s, err := a.status(c.Context(), "")
				if err != nil {
					return err
				}
				return a.printStatus(s, "", formatTable)
			}
			return a.screen(c.Context(), screen.Options{Graph: graph, TrueColor: tui.TrueColor(a.getenv), Theme: colours, Themes: a.themes(), Mouse: mouse}, readOnly)
		},
	}
	c.Flags().BoolVar(&once, "once", false, "print the table once and exit")
	c.Flags().BoolVar(&plain, "plain", false, "print changes as sentences, one per line: for screen readers, pipes and logs")
	c.Flags().BoolVar(&mouse, "mouse", true, "use the mouse; selecting text then requires shift")
	c.Flags().BoolVar(&readOnly, "read-only", false, "change nothing")
	c.Flags().StringSliceVar(&gateways, "gateways", nil, "show several gateways, given as kubeconfig contexts (`CONTEXT,…`) or socket paths")
	complete(c, "gateways", listed(func() []string { return a.cluster.chosen.Names("context") }, cobra.ShellCompDirectiveDefault))
	choiceFlag(c, &graph, "graph", "", a.graph(), "characters to draw charts with", graphBraille, graphBlock, graphASCII)
	c.Flags().StringVar(&colours, "theme", a.theme(), "colours: dark, light, contrast, colour-blind, or your own `theme`, by name or file")
	complete(c, "theme", listed(func() []string { return a.themes().Names() }, cobra.ShellCompDirectiveDefault))
	return c
}

// fleet runs the live screen for several gateways. One that does not answer is shown as such.
func (a *app) fleet(ctx context.Context, names []string, o screen.Options, readOnly bool) (err error) {
	if a.socket != "" || a.cluster.chosen.CurrentContext != "" {
		return usagef("give either", "--gateways names the gateways, and --socket or --context another one")
	}
	o.Fleet = true
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return usagef("name each once", "--gateways has %s twice", name)
		}
		client, end, err := a.named(name)
		if err != nil {
			return err
		}
		defer end()
		base := strings.TrimSuffix(filepath.Base(name), ".sock")
		taken := slices.Contains(names, base) || slices.ContainsFunc(o.Sources, func(s screen.NamedSource) bool { return s.Name == base })
		if a.isSocket(name) && !taken {
			name = base
		}
		s := screen.NamedSource{Name: name, Source: source{client}}
		if !readOnly {
			s.Operator = client
		}
		o.Sources = append(o.Sources, s)
	}
	o.Color, o.In, o.Out = a.color(), a.stdin, a.stdout.to
	err = screen.Run(ctx, o)
	if errors.Is(err, screen.ErrNoTerminal) {
		return usagef("postern tui --once --context CONTEXT prints the table of one", "tui: --gateways needs a terminal")
	}
	return err
}

// isSocket distinguishes a socket's path from a context, whose name may contain slashes as well
// (EKS, OpenShift).
func (a *app) isSocket(name string) bool {
	return strings.ContainsRune(name, os.PathSeparator) && !slices.Contains(a.cluster.chosen.Names("context"), name)
}

// named returns the client for a socket, or for a context of the kubeconfig, and a function that
// closes it.
func (a *app) named(name string) (*admin.Client, func(), error) {
	if a.isSocket(name) {
		client := admin.NewClient(name)
		return client, client.Close, nil
	}
	o := a.clusterOptions()
	o.Cluster.CurrentContext = name
	g, err := remote.Open(o)
	if err != nil {
		return nil, nil, err
	}
	client := admin.NewClientVia("the gateway of "+name, g.Dial)
	return client, func() { client.Close(); _ = g.Close() }, nil
}

// screen runs the live screen over the admin socket. A gateway that is missing at the start is an
// error; if it goes away later, the screen waits for it.
func (a *app) screen(ctx context.Context, o screen.Options, readOnly bool) error {
	client := a.client()
	if _, err := client.Status(ctx); err != nil {
		return err
	}
	o.Source, o.Check, o.Color, o.In, o.Out = source{client}, true, a.color(), a.stdin, a.stdout.to
	if !readOnly {
		o.Operator = client
	}
	err := screen.Run(ctx, o)
	if errors.Is(err, screen.ErrNoTerminal) {
		return usagef("postern tui --once prints a table", "tui: stdin is not a terminal, so no key could be read")
	}
	return err
}

// graph returns the default style of charts and signs.
func (a *app) graph() string { return or(a.getenv("POSTERN_GRAPH"), screen.GraphFor(a.getenv)) }

// theme returns the default theme.
func (a *app) theme() string { return or(a.getenv("POSTERN_THEME"), screen.ThemeFor(a.getenv)) }

// themes returns the folder of the user's themes.
func (a *app) themes() theme.Dir { return theme.DirFor(a.getenv) }

// source provides the screen with a gateway's data.
type source struct{ *admin.Client }

// Status returns the status with peers sorted by name.
func (s source) Status(ctx context.Context) (api.Status, error) {
	status, err := s.Client.Status(ctx)
	sortPeers(&status)
	return status, err
}

// follow prints changes while someone reads them: there may be none for days.
func (a *app) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out, there := file(a.stdout)
	return tui.Follow(ctx, a.stdout, func(ctx context.Context) (api.Status, error) {
		if there && unread(out) {
			cancel()
		}
		return a.status(ctx, "")
	})
}
