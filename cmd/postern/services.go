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
	"github.com/postern-dev/postern/tui/cell"
)

func (a *app) servicesCommand() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use:   "services [PEER]",
		Short: "List services exported to and imported from peers",
		Long: "List the services exported to and imported from peers (Multi-Cluster Services API), and say why any are " +
			"missing. The state is ok, waiting (one side has not sent its list yet, or a listener here cannot be " +
			"opened), failing (what came to a listener here last could not be carried to the peer), ungranted (exported, but not granted to any peer) or refused. ADDRESSES are where this gateway " +
			"listens for an imported service, as PORT=ADDRESS for several ports. READY is the number of ready backends of an exported service. RX and TX " +
			"are the bytes received from and sent to the peer, for services that are counted separately.",
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

// writeServices prints the services, and below why some are missing.
func writeServices(out io.Writer, s api.ClusterServices) error {
	if !s.Enabled || len(s.Services) == 0 {
		_, err := fmt.Fprintln(out, cell.NoServices(s.Enabled))
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SERVICE\tDIRECTION\tPEER\tSTATE\tPORTS\tADDRESSES\tCONNECTIONS\tREADY\tRX\tTX")
	for _, x := range s.Services {
		ready, rx, tx := "–", "–", "–"
		if x.ReadyBackends != nil {
			ready = strconv.Itoa(*x.ReadyBackends)
		}
		if x.Used != nil {
			rx, tx = cell.Size(float64(x.Used.RxBytes)), cell.Size(float64(x.Used.TxBytes))
		}
		fmt.Fprintln(w, strings.Join([]string{
			word(x.Service), x.Direction, word(x.Peer), word(strings.TrimSpace(x.State + " " + x.Code)), word(few(x.Ports)), word(few(cell.ServiceAddresses(&x))), strconv.Itoa(x.Connections), ready, rx, tx,
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

// few returns the first items of a list, and the number of the others.
func few(list []string) string {
	const most = 3
	if len(list) <= most {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
}
