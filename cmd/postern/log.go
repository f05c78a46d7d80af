package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tui"
)

func (a *app) logCommand() *cobra.Command {
	var (
		format string
		after  uint64
	)
	c := &cobra.Command{
		Use:   "log",
		Short: "Print the gateway's recent log",
		Long: "Print the part of the log that the gateway keeps in memory: the latest records, and the alarms since the " +
			"gateway started. With -o json each record has a sequence number, and --after NUMBER prints only later " +
			"records. Sequence numbers restart at 1 when the gateway restarts.",
		Example: "  postern log\n  postern log -o json | jq -r '.records[] | select(.level == \"WARN\").message'",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			l, err := a.client().Log(c.Context(), after)
			switch {
			case err != nil:
				return err
			case format == formatText:
				return writeLog(a.stdout, l)
			}
			return a.print(format, "Log", l)
		},
	}
	outputFlag(c, &format, formatText, formatJSON, formatYAML)
	c.Flags().Uint64Var(&after, "after", 0, "print only records after this sequence `number`")
	return c
}

// writeLog has a line for each record.
func writeLog(out io.Writer, l api.Log) error {
	for _, r := range l.Records {
		words := []string{r.Time.UTC().Format(time.RFC3339), fmt.Sprintf("%-5s", tui.Printable(r.Level)), tui.Printable(r.Message)}
		for _, attr := range r.Attrs {
			words = append(words, tui.Printable(attr.Key+"="+attr.Value))
		}
		if _, err := fmt.Fprintln(out, strings.Join(words, " ")); err != nil {
			return err
		}
	}
	return nil
}
