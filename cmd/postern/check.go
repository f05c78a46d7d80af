package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tui"
)

const formatJUnit = "junit"

// Values of --fail-on.
const (
	failOnError   = "error"
	failOnWarning = "warning"
)

// checkRetry is the pause between two rounds of `check --wait`.
const checkRetry = time.Second

// checkFlags are the flags of `postern check`.
type checkFlags struct {
	format, failOn string
	predict        []string
	throughput     bool
	last           bool
	wait           time.Duration
}

func (a *app) checkCommand() *cobra.Command {
	var f checkFlags
	c := &cobra.Command{
		Use:   "check [PEER]",
		Short: "Check every endpoint stage by stage, and explain each failure and how to fix it",
		Long: "Make the gateway check itself and its peers now. For each peer it checks the tunnel, the auth service " +
			"and the API server from this side, and shows what the peer reports from its side. Each failure has a " +
			"code, a cause and a fix to paste. Exits with 1 if a check fails. With --last the command runs no checks, " +
			"and shows the results of the gateway's own periodic checks.\n\nWith --predict the command sends nothing. " +
			"It predicts from descriptions of two clusters what will work between them, and what is missing. A " +
			"description is a YAML file (see control/predict), the JSON of `postern status` or `postern netcheck`, or " +
			"context:NAME[/NAMESPACE] for the cluster of a kubeconfig context. With only one description, or a " +
			"ticket, the other cluster is this gateway's. Exits with 1 if peering inside the tunnel would not work.",
		Example:           "  postern check\n  postern check cloud --wait 1m --fail-on warning\n  postern check --predict edge.yaml --predict context:cloud",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completePeer,
		RunE: func(c *cobra.Command, args []string) error {
			if f.last && (len(args)+len(f.predict) > 0 || f.wait != 0 || f.throughput) {
				return usagef("leave one out", "--last shows all the last results, without PEER, --wait, --throughput or --predict")
			}
			if len(f.predict) > 0 {
				return a.predict(c.Context(), args, f)
			}
			name := ""
			if len(args) == 1 {
				name = args[0]
			}
			return a.check(c.Context(), name, f)
		},
	}
	outputFlag(c, &f.format, formatTable, formatJSON, formatJUnit)
	c.Flags().DurationVar(&f.wait, "wait", 0, "repeat the checks until none fails or is unknown, at most for this long")
	c.Flags().BoolVar(&f.throughput, "throughput", false, "also measure the throughput of the path to PEER: one second each way, at most 64 MB")
	c.Flags().BoolVar(&f.last, "last", false, "show the last results without running checks")
	choiceFlag(c, &f.failOn, "fail-on", "", failOnError, "fail if a verdict has this `severity` or worse", failOnError, failOnWarning)
	c.Flags().StringArrayVar(&f.predict, "predict", nil, "predict what will work between the clusters that `FILE` (or a ticket, or context:NAME) describes; give it twice for two clusters, or once for one cluster and this gateway's")
	return c
}

func (a *app) check(ctx context.Context, name string, f checkFlags) error {
	if f.wait < 0 {
		return usagef("for example --wait 30s", "--wait %s is not a time to wait", f.wait)
	}
	report := a.checkUntilFine
	if f.last {
		report = func(ctx context.Context, _ string, _ checkFlags) (api.CheckReport, error) {
			return a.client().Checks(ctx)
		}
	}
	done := a.meanwhile("Checking …")
	r, err := report(ctx, name, f)
	done()
	if err != nil {
		return err
	}
	switch f.format {
	case formatJSON:
		err = a.print(formatJSON, "CheckReport", r)
	case formatJUnit:
		err = a.printJUnit(r)
	default:
		err = a.printChecks(ctx, r)
	}
	if err != nil {
		return err
	}
	return checkFailure(r, f.failOn)
}

// printChecks writes a report as text, with the way to each peer that has an error.
func (a *app) printChecks(ctx context.Context, r api.CheckReport) error {
	var s api.Status
	if tui.HasError(r) {
		var err error
		if s, err = a.client().Status(ctx); err != nil {
			return err
		}
	}
	_, err := fmt.Fprint(a.stdout, tui.Checks(r, s, a.width(), a.tableOptions(false)))
	return err
}

// checkUntilFine repeats the checks while one fails or has no result yet, until the timeout:
// right after a start there are no results, which does not count as success.
func (a *app) checkUntilFine(ctx context.Context, name string, f checkFlags) (api.CheckReport, error) {
	until := time.Now().Add(f.wait)
	for {
		r, err := a.client().Check(ctx, api.CheckRequest{Peer: name, Throughput: f.throughput})
		if err != nil || checkFailure(r, f.failOn) == nil && !undecided(r) || !time.Now().Add(checkRetry).Before(until) {
			return r, err
		}
		select {
		case <-time.After(checkRetry):
		case <-ctx.Done():
			return r, context.Cause(ctx)
		}
	}
}

// undecided reports whether a check has no result, other than because of another check.
func undecided(r api.CheckReport) bool {
	return slices.ContainsFunc(r.Checks, func(c api.Check) bool {
		return c.Verdict.Verdict == api.Unknown && c.DependsOn == ""
	})
}

// checkFailure returns an error if the report counts as a failure.
func checkFailure(r api.CheckReport, failOn string) error {
	warnings := failOn == failOnWarning
	if r.Summary.Error == 0 && (!warnings || r.Summary.Warning == 0) {
		return nil
	}
	var found []string
	for _, c := range r.Checks {
		if c.Verdict.Verdict == api.Error || warnings && c.Verdict.Verdict == api.Warning {
			found = append(found, c.Code+" "+checkPlace(c))
		}
	}
	const most = 4
	if n := len(found) - most; n > 0 {
		found = append(found[:most], fmt.Sprintf("%d more", n))
	}
	return failedf("postern check shows the cause and fix of each", "check: %s", strings.Join(found, ", "))
}

// checkPlace returns what a check is about: "cloud → apiServer", "cloud ← auth" or the name of an
// own check.
func checkPlace(c api.Check) string {
	switch {
	case c.Peer == "":
		return c.Name
	case c.Direction == api.DirectionInbound:
		return c.Peer + " ← " + c.Target
	}
	return c.Peer + " → " + c.Name
}
