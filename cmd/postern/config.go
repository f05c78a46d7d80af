package main

import (
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/tui"
)

func (a *app) configCommand() *cobra.Command {
	return group("config", "Validate, show, describe and reload the configuration",
		append(a.reaching(a.configView(), a.configReload(), a.configConfirm()), a.configValidate(), a.configSchema())...)
}

func (a *app) configView() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use:   "view [FILE|-]",
		Short: "Show every setting and where its value comes from",
		Long: "Show the configuration that the running gateway uses, or the one it would use with FILE and this " +
			"environment.",
		Example: "  postern config view\n  postern config view gateway.yaml -o json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			values, err := a.configValues(c, args)
			if err != nil {
				return err
			}
			if format != formatTable {
				return a.print(format, "", values)
			}
			w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "FIELD\tVALUE\tORIGIN")
			for _, v := range values {
				fmt.Fprintf(w, "%s\t%s\t%s\n", tui.Printable(v.Path), tui.Printable(v.Value), tui.Printable(v.Origin))
			}
			return w.Flush()
		},
	}
	outputFlag(c, &format, formatTable, formatJSON, formatYAML)
	return c
}

func (a *app) configValues(c *cobra.Command, args []string) ([]config.Value, error) {
	if len(args) == 0 {
		return a.client().Config(c.Context())
	}
	r, err := a.givenConfig(args[0], config.Overrides{LookupEnv: os.LookupEnv})
	if err != nil {
		return nil, err
	}
	return r.Values(), nil
}

func (a *app) configValidate() *cobra.Command {
	return &cobra.Command{
		Use:     "validate FILE|-",
		Short:   "Check a configuration file and the files it names",
		Example: "  postern config validate gateway.yaml && systemctl reload postern",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			r, err := a.givenConfig(args[0], config.Overrides{})
			if err != nil {
				return err
			}
			for _, w := range r.Warnings {
				fmt.Fprintf(a.stderr, "warning: %s\n", tui.Printable(w.Error()))
			}
			fmt.Fprintf(a.stdout, "%s: ok\n", args[0])
			return nil
		},
	}
}

func (a *app) configReload() *cobra.Command {
	var within time.Duration
	c := &cobra.Command{
		Use:   "reload",
		Short: "Make the gateway reload its configuration",
		Long: "Make the gateway reload its configuration, as SIGHUP does. Unchanged settings are left alone, and a file " +
			"with an error changes nothing. With --confirm-within the gateway restores the previous configuration " +
			"unless you confirm the new one in time. Use it for changes that may cut your own connection. The gateway " +
			"does not modify the file, but ignores the undone version until you change or reload it.",
		Example: "  postern config reload\n  postern config reload --confirm-within 2m && postern config confirm",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if !c.Flags().Changed("confirm-within") {
				if err := a.client().Reload(c.Context()); err != nil {
					return err
				}
				fmt.Fprintln(a.stdout, "the configuration is in force")
				return nil
			}
			t, err := a.client().ConfigTry(c.Context(), api.ConfigTryRequest{Within: api.Duration(within)})
			if err != nil {
				return err
			}
			if t.UndoneAt.IsZero() {
				fmt.Fprintln(a.stdout, "the configuration is in force; it is the one that was confirmed last")
				return nil
			}
			fmt.Fprintf(a.stdout, "the configuration is in force\nundone at %s unless you keep it: postern config confirm\n", t.UndoneAt.Local().Format(time.TimeOnly))
			return nil
		},
	}
	c.Flags().DurationVar(&within, "confirm-within", 0, "restore the previous configuration after this `time`, such as 2m, unless postern config confirm is run first")
	return c
}

func (a *app) configConfirm() *cobra.Command {
	return &cobra.Command{
		Use:     "confirm",
		Short:   "Keep the configuration that was loaded with --confirm-within",
		Example: "  postern config reload --confirm-within 2m\n  postern config confirm",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := a.client().ConfigConfirm(c.Context()); err != nil {
				return err
			}
			fmt.Fprintln(a.stdout, "the configuration stays")
			return nil
		},
	}
}

func (a *app) configSchema() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the configuration file",
		Long: "Print the JSON Schema (draft 7) of gateway.yaml. Editors use it to complete and check the file as you " +
			"write it. For the YAML language server, make this the first line of the file:\n# yaml-language-server: " +
			"$schema=gateway.schema.json",
		Example: "  postern config schema > gateway.schema.json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := a.stdout.Write(config.Schema())
			return err
		},
	}
}

// givenConfig is loadConfig for an argument: - is stdin.
func (a *app) givenConfig(path string, o config.Overrides) (*config.Resolved, error) {
	if path != "-" {
		return loadConfig(path, o)
	}
	return loaded(config.Read(a.stdin, "stdin", o))
}

// loadConfig reads a configuration. An unreadable file is a usage error.
func loadConfig(path string, o config.Overrides) (*config.Resolved, error) {
	return loaded(config.Load(path, o))
}

func loaded(r *config.Resolved, err error) (*config.Resolved, error) {
	if err == nil || errorsAsProblems(err) {
		return r, err
	}
	return nil, usagef("", "%w", err)
}
