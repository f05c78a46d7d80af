package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tui"
	"github.com/postern-dev/postern/tui/cell"
)

func (a *app) discoverCommand() *cobra.Command {
	var (
		format string
		watch  bool
	)
	c := &cobra.Command{
		Use:   "discover",
		Short: "List the gateways found on the local network and in DNS",
		Long: "List the gateways that announce themselves on the local network (multicast DNS, if " +
			"spec.discovery.lan.enabled is set) and in the domains of spec.discovery.dns. If there are none, say why. " +
			"An announcement proves nothing: compare the fingerprint with the other operator, then run `postern peer " +
			"approve NAME` at both gateways.\n\nThe states are unknown (not a peer), pending, approved (a peer here, " +
			"but not connected; it may still have to approve this gateway), peer, conflict (a peer's name with a " +
			"different key; ignored) and invalid.",
		Example: "  postern discover\n  postern discover --watch",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if watch && format == formatYAML {
				return usagef("use -o json", "--watch writes tables and JSON, not YAML")
			}
			d, err := a.client().Discovered(c.Context())
			if err != nil {
				return err
			}
			_, screen := terminal(a.stdout)
			switch {
			case watch && (format == formatJSON || screen):
				return a.watchDiscovered(c.Context(), d, format)
			case format == formatTable:
				return writeDiscovered(a.stdout, d)
			}
			return a.print(format, "DiscoveredList", d)
		},
	}
	outputFlag(c, &format, formatTable, formatJSON, formatYAML)
	c.Flags().BoolVar(&watch, "watch", false, "keep watching: print a line for each gateway that appears, changes or disappears; with -o json, a document")
	return c
}

// writeDiscovered prints the discovered gateways, and below why others may be missing.
func writeDiscovered(out io.Writer, d api.DiscoveredList) error {
	self := fmt.Sprintf("this gateway: %s, fingerprint %s", tui.Printable(d.Name), d.Fingerprint)
	if d.AnnouncedAs != "" && d.AnnouncedAs != d.Name {
		self += fmt.Sprintf("; its name is taken on the local network, where it is announced as %q", tui.Printable(d.AnnouncedAs))
	}
	fmt.Fprintf(out, "%s\n\n", self)
	if len(d.Gateways) > 0 {
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "NAME\tSTATE\tFINGERPRINT\tADDRESSES\tAGE\tFOUND BY\tPEER")
		for _, g := range d.Gateways {
			fmt.Fprintln(w, strings.Join(discoveredCells(g), "\t"))
		}
		if err := w.Flush(); err != nil {
			return err
		}
	} else {
		fmt.Fprintln(out, nobodyFound(d))
	}
	for _, g := range d.Gateways {
		if !g.Problem.IsZero() {
			fmt.Fprintf(out, "\n%s: %s\n", g.Name, g.Problem)
		}
	}
	for _, p := range d.Problems {
		fmt.Fprintf(out, "\n%s\n", strings.TrimSpace(tui.Printable(p.Code)+" "+p.Problem.String()))
		if p.Fix != "" {
			fmt.Fprintf(out, "  %s\n", tui.Printable(p.Fix))
		}
	}
	return nil
}

// nobodyFound returns the message that no gateway was found, with where they were looked for.
func nobodyFound(d api.DiscoveredList) string {
	if len(d.Looking) == 0 && len(d.Problems) == 0 {
		return "gateways are not looked for: set spec.discovery.lan: {enabled: true}, or spec.discovery.dns.domains"
	}
	text := "no other gateway was found"
	if len(d.Looking) > 0 {
		text += "; looked for on " + tui.Printable(strings.Join(d.Looking, ", "))
	}
	return text
}

func discoveredCells(g api.Discovered) []string {
	age := "–"
	if !g.SeenAt.IsZero() {
		age = cell.Age(time.Duration(g.AgeSeconds * float64(time.Second)))
	}
	by := g.Source
	if g.Domain != "" {
		by += " " + g.Domain
	}
	return []string{
		g.Name.String(), g.State, cmp.Or(g.Fingerprint, "–"), cmp.Or(strings.Join(g.Addresses, ", "), "–"), age,
		tui.Printable(by), cmp.Or(tui.Printable(g.Peer), "–"),
	}
}

// watchDiscovered polls every second until it is interrupted.
func (a *app) watchDiscovered(ctx context.Context, d api.DiscoveredList, format string) error {
	if format == formatJSON {
		if err := a.printLine("DiscoveredList", d); err != nil {
			return err
		}
	} else if err := writeDiscovered(a.stdout, d); err != nil {
		return err
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		next, err := a.client().Discovered(ctx)
		if err != nil {
			return err
		}
		changes := discoveredChanges(d, next)
		d = next
		switch {
		case len(changes) == 0:
		case format == formatJSON:
			if err := a.printLine("DiscoveredList", d); err != nil {
				return err
			}
		default:
			for _, line := range changes {
				fmt.Fprintf(a.stdout, "%s  %s\n", time.Now().Format(time.TimeOnly), line)
			}
		}
	}
}

// discoveredChanges returns what was added, changed and removed. A different age is no change.
func discoveredChanges(before, after api.DiscoveredList) []string {
	lines := func(d api.DiscoveredList) []string {
		var out []string
		for _, g := range d.Gateways {
			g.SeenAt = time.Time{}
			cells := discoveredCells(g)
			cells = slices.Delete(cells, 4, 5) // the age
			out = append(out, strings.Join(append(cells, g.Problem.String()), "  "))
		}
		return out
	}
	was, is := lines(before), lines(after)
	var out []string
	for _, l := range was {
		if !slices.Contains(is, l) {
			out = append(out, "- "+strings.TrimSpace(l))
		}
	}
	for _, l := range is {
		if !slices.Contains(was, l) {
			out = append(out, "+ "+strings.TrimSpace(l))
		}
	}
	return out
}
