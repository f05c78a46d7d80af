package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/testenv/lab"
	"github.com/postern-dev/postern/tui"
)

// scenarios are what the lab can play.
func scenarios() map[string]string {
	return map[string]string{
		lab.DefaultScenario: "cloud has a public address, edge is behind a port-restricted NAT; edge joins with a ticket",
	}
}

func (a *app) labCommand() *cobra.Command {
	var (
		once, list       bool
		format, scenario string
	)
	c := &cobra.Command{
		Use:   "lab",
		Short: "Show two gateways peer across a NAT, in this process",
		Long: "Start two complete gateways, two API endpoints that demand client certificates, and an internet " +
			"with a NAT between them, all in this process and without privileges; invite, join, and list " +
			"through the tunnel in both directions. The gateways, their tunnel, tickets and certificates are " +
			"real; the internet, the NAT and what stands behind the API endpoints are simulated.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := oneOf("-o", format, formatTable, formatJSON); err != nil {
				return err
			}
			if list {
				for name, what := range scenarios() {
					fmt.Fprintf(a.stdout, "%s\t%s\n", name, what)
				}
				return nil
			}
			if _, known := scenarios()[scenario]; !known {
				return usagef("postern lab --list names them", "there is no scenario %q", scenario)
			}
			return a.lab(c.Context(), once, format)
		},
	}
	f := c.Flags()
	f.BoolVar(&once, "once", false, "end when all steps are done")
	f.BoolVar(&list, "list", false, "list the scenarios")
	f.StringVar(&scenario, "scenario", lab.DefaultScenario, "what to play, by `name`")
	outputFlag(c, &format, formatTable, "table or json")
	return c
}

// lab plays the demonstration, then keeps it on the screen if there is one.
func (a *app) lab(ctx context.Context, once bool, format string) (err error) {
	start := time.Now()
	l, err := lab.Build(ctx, lab.Options{Version: buildVersion().Version})
	if err != nil {
		return fmt.Errorf("build the lab: %w", err)
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	story := a.stdout
	if format == formatJSON {
		story = io.Discard
	}
	fmt.Fprint(story, "two clusters, cloud and edge, with a port-restricted NAT before edge\n"+
		"real: gateways, WireGuard, network stack, tickets, certificates, TLS\n"+
		"simulated: the internet, the NAT, and what stands behind the API endpoints\n\n")
	out := api.Lab{Kind: "Lab", Steps: []api.LabStep{}}
	failed := l.Run(ctx, func(s api.LabStep) {
		out.Steps = append(out.Steps, s)
		glyph := "✓"
		if !s.OK {
			glyph = "✗"
		}
		fmt.Fprintf(story, "%s %-13s %6.2f s  %s\n", glyph, s.Name, s.Seconds, tui.Printable(s.Detail))
	})
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
	return a.labScreen(ctx, l, once || format == formatJSON)
}

func (a *app) labTables(gateways []api.Status, took time.Duration) {
	for _, s := range gateways {
		fmt.Fprintf(a.stdout, "\n%s", tui.Table(s, a.width(), a.tableOptions(false)))
	}
	fmt.Fprintf(a.stdout, "\n%.1f s in all\n", took.Seconds())
}

// labScreen shows both gateways live until someone quits.
func (a *app) labScreen(ctx context.Context, l *lab.Lab, once bool) error {
	in, inOK := terminal(a.stdin)
	out, outOK := terminal(a.stdout)
	if once || !inOK || !outOK {
		return nil
	}
	return tui.Watch(ctx, in, out, l.Statuses, tui.WatchOptions{Color: a.color(), Below: []string{
		"the gateways run on until you quit; from another terminal:",
		"  postern --socket " + l.Cloud.Socket + " status edge",
		"  postern --socket " + l.Edge.Socket + " ping cloud",
	}})
}
