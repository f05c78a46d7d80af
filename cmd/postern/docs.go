package main

import (
	"fmt"
	"io"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/postern-dev/postern/control/config"
)

func (a *app) completionCommand() *cobra.Command {
	return &cobra.Command{
		Use:                   "completion SHELL",
		Short:                 "Print the completion script for bash, zsh, fish or powershell",
		Example:               "  source <(postern completion bash)",
		DisableFlagsInUseLine: true,
		ValidArgs:             []string{"bash", "zsh", "fish", "powershell"},
		Args:                  cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		RunE: func(c *cobra.Command, args []string) error {
			switch root := c.Root(); args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.stdout, true)
			case "zsh":
				return root.GenZshCompletion(a.stdout)
			case "fish":
				var script strings.Builder
				err := root.GenFishCompletion(&script, true)
				if err == nil {
					_, err = io.WriteString(a.stdout, fishScript(script.String()))
				}
				return err
			default:
				return root.GenPowerShellCompletionWithDesc(a.stdout)
			}
		},
	}
}

func (a *app) manCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "man",
		Short:   "Print the manual page",
		Example: "  postern man | man -l -",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := io.WriteString(a.stdout, manual(c.Root(), a.cluster.flags))
			return err
		},
	}
}

// page is a manual page in the macros of man(7).
type page struct {
	strings.Builder
	shared *pflag.FlagSet // flags of many commands, which are described once
}

// control matches what troff would interpret as a request at the beginning of a line.
var control = regexp.MustCompile(`(?m)^([.'])`)

// roff escapes a text: troff interprets backslashes as escapes, and turns hyphens into dashes.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	return control.ReplaceAllString(s, `\&$1`)
}

// macro writes a request with its arguments.
func (p *page) macro(name string, arguments ...string) {
	p.WriteString("." + name)
	for _, a := range arguments {
		p.WriteString(` "` + strings.ReplaceAll(roff(a), `"`, `\(dq`) + `"`)
	}
	p.WriteByte('\n')
}

// text writes a paragraph.
func (p *page) text(s string) {
	p.WriteString(roff(strings.TrimSpace(s)) + "\n")
}

// typed writes lines literally.
func (p *page) typed(s string) {
	p.macro("EX")
	for line := range strings.Lines(s) {
		p.text(strings.TrimPrefix(strings.TrimRight(line, "\n"), "  "))
	}
	p.macro("EE")
}

// item writes a term and its meaning.
func (p *page) item(term, meaning string) {
	p.macro("TP")
	p.macro("B", term)
	p.text(meaning)
}

// manual returns the program's page: every command with its flags and examples.
func manual(root *cobra.Command, cluster *pflag.FlagSet) string {
	p := &page{shared: cluster}
	p.macro("TH", strings.ToUpper(root.Name()), "1", buildDate(), "postern "+buildVersion().Version, "User Commands")
	p.macro("SH", "NAME")
	p.WriteString(root.Name() + ` \- ` + roff(root.Short) + "\n")
	p.macro("SH", "SYNOPSIS")
	p.macro("B", root.Name())
	p.text("COMMAND [ARGUMENT…] [OPTION…]")
	p.macro("SH", "DESCRIPTION")
	p.text(root.Long)
	p.macro("SH", "OPTIONS")
	root.InitDefaultHelpFlag()
	p.flags(root.LocalFlags())
	p.macro("SS", "Gateways in a cluster")
	p.text("Commands that query a gateway query the one in a cluster if any of these kubectl flags is given:")
	cluster.VisitAll(p.flag)
	p.macro("SH", "COMMANDS")
	p.commands(root)
	p.macro("SH", "ENVIRONMENT")
	p.text("Flags override variables, and variables override the configuration file. An empty variable counts as not set.")
	p.item("POSTERN_CONFIG", "The configuration file of postern gateway (--config).")
	for _, s := range config.Settings() {
		_, usage := pflag.UnquoteUsage(&pflag.Flag{Usage: s.Usage, Value: new(choice)})
		p.item(s.Env, "Sets "+s.Path+" (--"+s.Flag+"): "+usage+".")
	}
	p.item("POSTERN_LOG_FORMAT, POSTERN_LOG_LEVEL", "What postern gateway logs (--log-format, --log-level).")
	p.item("POSTERN_GRAPH", "Characters to draw charts with (postern tui --graph).")
	p.item("POSTERN_THEME", "Colours of the live screen (postern tui --theme).")
	p.item("KUBECONFIG", "The kubeconfig for --context, --namespace and the like, as for kubectl.")
	p.item("NO_COLOR", "If it is set, output has no colours.")
	p.macro("SH", "FILES")
	p.item("/etc/postern/gateway.yaml", "The configuration, where a package has installed postern.")
	p.item(config.DefaultStateDir, "The key, the peers and the open tickets (spec.stateDir): back it up, and keep it secret.")
	p.item(config.DefaultSocket, "The admin socket, through which commands reach the gateway (spec.admin.socket).")
	p.macro("SH", "EXIT STATUS")
	for _, s := range [][2]string{{"0", "Success."}, {"1", "A check failed, or the requested state was not reached."},
		{"2", "The command line or the configuration is wrong."}, {"3", "There is no gateway to talk to."}, {"130", "Interrupted."}} {
		p.item(s[0], s[1])
	}
	p.macro("SH", "EXAMPLES")
	p.typed(root.Example)
	return p.String()
}

// commands writes the commands below c with their descriptions.
func (p *page) commands(c *cobra.Command) {
	for _, sub := range c.Commands() {
		if sub.Hidden || !sub.IsAvailableCommand() {
			continue
		}
		p.macro("SS", strings.TrimSuffix(sub.UseLine(), " [flags]"))
		p.text(sub.Short + ".")
		if sub.Long != "" {
			p.macro("PP")
			p.text(sub.Long)
		}
		p.flags(sub.NonInheritedFlags())
		if sub.Example != "" {
			p.macro("PP")
			p.text("For example:")
			p.macro("PP")
			p.typed(sub.Example)
		}
		p.commands(sub)
	}
}

// flags writes each flag with its default.
func (p *page) flags(set *pflag.FlagSet) {
	set.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && f.Name != "help" && p.shared.Lookup(f.Name) != f {
			p.flag(f)
		}
	})
}

func (p *page) flag(f *pflag.Flag) {
	name, usage := pflag.UnquoteUsage(f)
	term := "--" + f.Name
	if f.Shorthand != "" {
		term = "-" + f.Shorthand + ", " + term
	}
	if name != "" {
		term += " " + name
	}
	if initial := f.DefValue; !slices.Contains([]string{"", "false", "0", "0s", "[]"}, initial) {
		usage += " (default " + strings.Trim(initial, "[]") + ")"
	}
	p.item(term, usage+".")
}

// buildDate returns the date of the commit that the program was built from; empty if unknown.
func buildDate() string {
	info, _ := debug.ReadBuildInfo()
	if info == nil {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.time" {
			return fmt.Sprintf("%.10s", s.Value)
		}
	}
	return ""
}
