package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/testenv/lab"
	"github.com/postern-dev/postern/tui"
)

func (a *app) labCommand() *cobra.Command {
	var (
		once, list       bool
		format, scenario string
	)
	c := &cobra.Command{
		Use:   "lab",
		Short: "Show two gateways peer across a NAT, in this process",
		Long: "Start two complete gateways, two API endpoints that demand client certificates, and an internet " +
			"between them, all in this process and without privileges; then play a scenario: invite, join, and what " +
			"the network between them makes of it. The gateways, their tunnel, tickets and certificates are " +
			"real; the internet, NATs, firewalls and what stands behind the API endpoints are simulated. " +
			"`postern lab --list` lists the scenarios.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := oneOf("-o", format, formatTable, formatJSON); err != nil {
				return err
			}
			if list {
				a.listScenarios()
				return nil
			}
			s, known := lab.FindScenario(scenario)
			if !known {
				return usagef("there are: "+strings.Join(scenarioNames(), ", "), "there is no scenario %q", scenario)
			}
			return a.lab(c.Context(), s, once, format)
		},
	}
	f := c.Flags()
	f.BoolVar(&once, "once", false, "end when all steps are done")
	f.BoolVar(&list, "list", false, "list the scenarios")
	f.StringVar(&scenario, "scenario", lab.DefaultScenario, "what to play, by `name`")
	outputFlag(c, &format, formatTable, "table or json")
	complete := func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return scenarioNames(), cobra.ShellCompDirectiveNoFileComp
	}
	if err := c.RegisterFlagCompletionFunc("scenario", complete); err != nil {
		panic(err) // the flag is defined above
	}
	return c
}

func scenarioNames() []string {
	var names []string
	for _, s := range lab.Scenarios() {
		names = append(names, s.Name)
	}
	return names
}

func (a *app) listScenarios() {
	story := a.labStory(formatTable)
	for _, s := range lab.Scenarios() {
		story.print(fmt.Sprintf("%-26s ", s.Name), s.Summary)
	}
}

// lab plays a scenario, then keeps it on the screen if there is one.
func (a *app) lab(ctx context.Context, s lab.Scenario, once bool, format string) (err error) {
	start := time.Now()
	l, err := lab.Build(ctx, lab.Options{Version: buildVersion().Version, Scenario: s})
	if err != nil {
		return fmt.Errorf("build the lab: %w", err)
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	out := api.Lab{Kind: "Lab", Steps: []api.LabStep{}}
	story := a.labStory(format)
	story.introduce(s)
	failed := l.Run(ctx, lab.Progress{Begin: story.begin, End: func(s api.LabStep) {
		out.Steps = append(out.Steps, s)
		story.end(s)
	}})
	if out.Gateways, err = l.Statuses(ctx); err != nil {
		return err
	}
	if format == formatJSON {
		if err := a.print(formatJSON, out); err != nil {
			return err
		}
	} else {
		a.labTables(out.Gateways, time.Since(start))
	}
	if failed != nil {
		return failedf("run it again; if it fails again it is a fault of postern: please report it with this output", "lab: %w", failed)
	}
	done := fmt.Sprintf("✓ %d steps of %s are done; after q they can be read again", len(out.Steps), s.Name)
	return a.labScreen(ctx, l, once || format == formatJSON, done)
}

func (a *app) labTables(gateways []api.Status, took time.Duration) {
	for _, s := range gateways {
		fmt.Fprintf(a.stdout, "\n%s", tui.Table(s, a.width(), a.tableOptions(false)))
	}
	fmt.Fprintf(a.stdout, "\n%.1f s in all\n", took.Seconds())
}

// labScreen shows both gateways live until someone quits.
func (a *app) labScreen(ctx context.Context, l *lab.Lab, once bool, done string) error {
	in, inOK := terminal(a.stdin)
	out, outOK := terminal(a.stdout)
	if once || !inOK || !outOK {
		return nil
	}
	return tui.Watch(ctx, in, out, l.Statuses, tui.WatchOptions{Color: a.color(), Below: []string{
		done,
		"the gateways run on until you quit; from another terminal:",
		"  postern --socket " + l.Cloud.Socket + " status edge",
		"  postern --socket " + l.Cloud.Socket + " path edge",
		"  postern --socket " + l.Edge.Socket + " ping cloud",
	}})
}
