package main

import (
	"fmt"
	"io"
	"strings"

	mcobra "github.com/muesli/mango-cobra"
	"github.com/muesli/roff"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
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
			withoutQuotes(c.Root())
			page, err := mcobra.NewManPage(1, c.Root())
			if err != nil {
				return fmt.Errorf("write the manual page: %w", err)
			}
			page = page.WithSection("Exit status", "0 fine. 1 a check failed, or the asked-for state was not reached. "+
				"2 usage or configuration. 3 no gateway to talk to. 130 interrupted.")
			_, err = fmt.Fprintln(a.stdout, page.Build(roff.NewDocument()))
			return err
		},
	}
}

// withoutQuotes takes the backquotes off the flags' usage, which mark the name of the
// value in help and would be printed as they are in the manual.
func withoutQuotes(c *cobra.Command) {
	unquote := func(f *pflag.Flag) { _, f.Usage = pflag.UnquoteUsage(f) }
	c.Flags().VisitAll(unquote)
	c.PersistentFlags().VisitAll(unquote)
	for _, sub := range c.Commands() {
		withoutQuotes(sub)
	}
}
