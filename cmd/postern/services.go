package main

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tui"
)

func (a *app) servicesCommand() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use:   "services [PEER]",
		Short: "List services exported to and imported from peers",
		Long: "List services exported to and imported from peers (Multi-Cluster Services API), and those that are " +
			"missing, with the reason. The state is ok, waiting (the peer has not been told yet, or has not told, or a " +
			"listener here cannot be opened), ungranted (exported, and no peer may have it) or refused. ADDRESSES are where " +
			"an imported service is listened for here.",
		Example:           "  postern services\n  postern services cloud -o json | jq '.services[] | select(.state == \"refused\")'",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completePeer,
		RunE: func(c *cobra.Command, args []string) error {
			s, err := a.client().ClusterServices(c.Context(), strings.Join(args, ""))
			switch {
			case err != nil:
				return err
			case format == formatTable:
				return writeServices(a.stdout, s)
			}
			return a.print(format, "ClusterServices", s)
		},
	}
	outputFlag(c, &format, formatTable, formatJSON, formatYAML)
	return c
}

// writeServices prints them, and below why some are not there.
func writeServices(out io.Writer, s api.ClusterServices) error {
	switch {
	case !s.Enabled:
		_, err := fmt.Fprintln(out, "services across clusters are off: set spec.kubernetes.mcs (Helm value mcs.enabled)")
		return err
	case len(s.Services) == 0:
		_, err := fmt.Fprintln(out, "no service is exported or imported; see services.export and services.import of the peers, and `kubectl get serviceexports -A` where there is a cluster")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SERVICE\tDIRECTION\tPEER\tSTATE\tPORTS\tADDRESSES\tCONNECTIONS")
	for _, x := range s.Services {
		fmt.Fprintln(w, strings.Join([]string{
			word(x.Service), x.Direction, word(x.Peer), word(strings.TrimSpace(x.State + " " + x.Code)), word(few(x.Ports)), word(few(x.Addresses)), strconv.Itoa(x.Connections),
		}, "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, x := range s.Services {
		if x.Cause != "" {
			fmt.Fprintf(out, "\n%s %s\n  %s\n", tui.Printable(x.Code), tui.Printable(x.Cause), tui.Printable(x.Fix))
		}
	}
	return nil
}

func word(s string) string { return cmp.Or(tui.Printable(s), "–") }

// few are the first of a list, and how many more there are.
func few(list []string) string {
	const most = 3
	if len(list) <= most {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
}
