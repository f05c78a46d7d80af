package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/suggest"
	"github.com/postern-dev/postern/testenv/lab"
	"github.com/postern-dev/postern/tui"
	"github.com/postern-dev/postern/tui/screen"
)

func (a *app) labCommand() *cobra.Command {
	var (
		once, list       bool
		format, scenario string
	)
	c := &cobra.Command{
		Use:   "lab",
		Short: "Run two gateways in one process, and show what can go wrong between them",
		Long: "Start two complete gateways, two API endpoints that require client certificates, and an internet between " +
			"them, in one unprivileged process. Then play a scenario: invite, join, and what the network does to the " +
			"gateways. The gateways, their tunnel, tickets and certificates are real. The internet, the NATs and " +
			"firewalls, and everything behind the API endpoints are simulated. `postern lab --list` lists the " +
			"scenarios.\n\nA fault scenario causes a fault, shows what each side finds, and applies the printed fix. " +
			"On a terminal you apply the fix: watch the fault appear on the live screen, press n for the other " +
			"gateway, and type :fix.",
		Example: "  postern lab\n  postern lab --list\n  postern lab --scenario blocked-outbound --once",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if list && format != formatTable {
				return usagef("leave out -o", "--list has no other format than a table")
			}
			if list {
				a.listScenarios()
				return nil
			}
			s, known := lab.FindScenario(scenario)
			if !known {
				return noScenario(scenario)
			}
			return a.lab(c.Context(), s, once, format)
		},
	}
	f := c.Flags()
	f.BoolVar(&once, "once", false, "play all steps and exit, without the live screen")
	f.BoolVar(&list, "list", false, "list the scenarios")
	f.StringVar(&scenario, "scenario", lab.DefaultScenario, "the scenario's `name`")
	outputFlag(c, &format, formatTable, formatJSON)
	complete(c, "scenario", listed(scenarioNames, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func noScenario(name string) error {
	hint := "there are: " + strings.Join(scenarioNames(), ", ")
	if word := suggest.Nearest(name, scenarioNames()); word != "" {
		hint = "did you mean " + word + "?"
	}
	return usagef(hint, "there is no scenario %q", name)
}

func scenarioNames() []string {
	var names []string
	for _, s := range lab.Scenarios() {
		names = append(names, s.Name)
	}
	return names
}

// listScenarios lists the networks first, then the faults.
func (a *app) listScenarios() {
	story := a.labStory(formatTable)
	for _, group := range []struct {
		title  string
		faults bool
	}{{"networks", false}, {"faults, how both sides find them, and what fixes them", true}} {
		fmt.Fprintf(a.stdout, "%s\n", group.title)
		for _, s := range lab.Scenarios() {
			if s.Fault() == group.faults {
				story.print(fmt.Sprintf("  %-26s ", s.Name), s.Summary)
			}
		}
	}
}

// lab plays a scenario, then shows it on the screen if there is a terminal. A fault is caused
// while the screen is shown.
func (a *app) lab(ctx context.Context, s lab.Scenario, once bool, format string) (err error) {
	start := time.Now()
	defer a.tidies()()
	setLibraryLogs(slog.New(slog.DiscardHandler)) // it would be written across the screen
	l, err := lab.Build(ctx, lab.Options{Version: buildVersion().Version, Scenario: s})
	if err != nil {
		return fmt.Errorf("build the lab: %w", err)
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	live := !once && format == formatTable && a.onTerminal()
	out := api.Lab{Kind: "Lab", Steps: []api.LabStep{}}
	story := a.labStory(format)
	story.introduce(s)
	phases := []lab.Phase{lab.Prepare, lab.Harm, lab.Fix}
	if live {
		phases = phases[:1]
	}
	var failed error
	for _, phase := range phases {
		if failed == nil {
			failed = l.Play(ctx, phase, lab.Progress{Begin: story.begin, End: func(s api.LabStep) {
				out.Steps = append(out.Steps, s)
				story.end(s)
			}})
		}
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case failed != nil:
	case live && s.Fault():
		return a.train(ctx, l, s)
	case live:
		return a.labScreen(ctx, l, func() string {
			return fmt.Sprintf("✓ %d steps of %s are done; press q to read them again", len(out.Steps), s.Name)
		})
	}
	if out.Gateways, err = l.Statuses(ctx); err != nil {
		return err
	}
	if format == formatJSON {
		err = a.print(formatJSON, "Lab", out)
	} else {
		a.labTables(out.Gateways, time.Since(start))
	}
	if failed != nil {
		return failedf("run it again; if it fails again, it is a bug in postern: please report it with this output", "lab: %w", failed)
	}
	return err
}

func (a *app) labTables(gateways []api.Status, took time.Duration) {
	for _, s := range gateways {
		fmt.Fprintf(a.stdout, "\n%s", tui.Table(s, a.width(), a.tableOptions(false)))
	}
	fmt.Fprintf(a.stdout, "\n%.1f s in all\n", took.Seconds())
}

// onTerminal reports whether a screen can be shown.
func (a *app) onTerminal() bool {
	_, in := terminal(a.stdin)
	_, out := terminal(a.stdout)
	return in && out
}

// labScreen shows both gateways live, below a note, until someone quits.
func (a *app) labScreen(ctx context.Context, l *lab.Lab, note func() string, actions ...screen.Action) error {
	o := screen.Options{Color: a.color(), Graph: a.graph(), TrueColor: tui.TrueColor(a.getenv), Theme: a.theme(), Themes: a.themes(), Mouse: true, In: a.stdin, Out: a.stdout.to, Note: note, Actions: actions}
	for _, site := range []*lab.Site{l.Edge, l.Cloud} {
		o.Sources = append(o.Sources, screen.NamedSource{Name: site.Name, Source: inProcess{site}, Operator: admin.NewClient(site.Socket)})
		o.Actions = append(o.Actions, screen.Action{
			Name: "socket-" + site.Name, Does: "how to reach " + site.Name + " from another terminal",
			Do: func(context.Context) (string, error) { return "postern --socket " + site.Socket + " status", nil },
		})
	}
	return screen.Run(ctx, o)
}
