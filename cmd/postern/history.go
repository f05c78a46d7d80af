package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tui"
)

// defaultPast is the default period of history.
const defaultPast = time.Hour

func (a *app) historyCommand() *cobra.Command {
	var format string
	r := api.HistoryRequest{Since: defaultPast}
	c := &cobra.Command{
		Use:   "history PEER",
		Short: "Show the recent history of a peer",
		Long: "Show a peer's last hour: its state and path, the verdicts in both directions, round trip, loss and " +
			"throughput over time, and its events. Events are V verdict (with its end), P path change, R restart of " +
			"its gateway, K new key, J joined. The gateway keeps one day by the minute and the last 10 minutes by the " +
			"second. It keeps them in memory only, so the history starts over when the gateway restarts. Each column " +
			"shows the worst state of its interval. Use -o json to get the data.",
		Example: "  postern history cloud\n  postern history cloud --since 24h\n" +
			"  postern history cloud -o json | jq -r '.peers[].events[].event'",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completePeer,
		RunE: func(c *cobra.Command, args []string) error {
			r.Peers = args
			return a.history(c.Context(), r, format)
		},
	}
	outputFlag(c, &format, formatText, formatJSON, formatYAML)
	c.Flags().DurationVar(&r.Since, "since", r.Since, "how far back, at most 24h")
	c.Flags().DurationVar(&r.Step, "step", 0, "merge points into intervals of this length, such as 1m; 0s keeps them as stored")
	return c
}

func (a *app) history(ctx context.Context, r api.HistoryRequest, format string) error {
	if r.Since <= 0 {
		return usagef("for example --since 30m", "--since %s is not a time to look back", r.Since)
	}
	if r.Step < 0 {
		return usagef("for example --step 1m", "--step %s is not a length of time", r.Step)
	}
	h, err := a.client().History(ctx, r)
	if err != nil {
		return err
	}
	if format != formatText {
		return a.print(format, "History", h)
	}
	for i := range h.Peers {
		if _, err := fmt.Fprint(a.stdout, tui.History(h, &h.Peers[i], a.width(), a.tableOptions(false))); err != nil {
			return err
		}
	}
	return nil
}
