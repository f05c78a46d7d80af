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

func (a *app) statusCommand() *cobra.Command {
	var (
		format string
		watch  bool
	)
	c := &cobra.Command{
		Use:   "status [PEER]",
		Short: "Show what works, what does not and why, and how to fix it",
		Long: "Show the gateway and its peers. A right arrow marks what this gateway finds at the peer; a left arrow " +
			"marks what the peer reports about this gateway. With --watch on a terminal, the table stays on the " +
			"screen and is updated.",
		Example:           "  postern status\n  postern status cloud -o wide\n  postern status -o json | jq -r '.peers[].state'",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completePeer,
		RunE: func(c *cobra.Command, args []string) error {
			name := ""
			if len(args) == 1 {
				name = args[0]
			}
			if watch {
				return a.watchStatus(c.Context(), name, format)
			}
			s, err := a.status(c.Context(), name)
			if err != nil {
				return err
			}
			return a.printStatus(s, name, format)
		},
	}
	outputFlag(c, &format, formatTable, formatWide, formatJSON, formatYAML)
	c.Flags().BoolVar(&watch, "watch", false, "keep the table on the screen and update it; with -o json, print a document every second")
	return c
}

// status requests the status; with a name it only keeps that peer.
func (a *app) status(ctx context.Context, name string) (api.Status, error) {
	s, err := a.client().Status(ctx)
	if err != nil {
		return s, err
	}
	sortPeers(&s)
	if name == "" {
		return s, nil
	}
	p, err := findPeer(s, name)
	s.Peers = []api.PeerStatus{p}
	return s, err
}

func sortPeers(s *api.Status) {
	slices.SortStableFunc(s.Peers, func(x, y api.PeerStatus) int { return strings.Compare(x.Name, y.Name) })
}

func (a *app) printStatus(s api.Status, name, format string) error {
	if format == formatJSON || format == formatYAML {
		return a.print(format, "Status", s)
	}
	text := tui.Table(s, a.width(), a.tableOptions(format == formatWide))
	if name != "" {
		text = tui.Peer(s.Peers[0], a.width(), a.tableOptions(format == formatWide))
	}
	_, err := fmt.Fprint(a.stdout, text)
	return err
}

// watchStatus shows the status until someone quits. Without a terminal it prints a table once, or
// JSON continuously, one line a second.
func (a *app) watchStatus(ctx context.Context, name, format string) error {
	switch format {
	case formatJSON:
		return a.streamStatus(ctx, name)
	case formatYAML:
		return usagef("use -o json", "--watch writes tables and JSON, not YAML")
	}
	in, inOK := terminal(a.stdin)
	out, outOK := terminal(a.stdout)
	if !inOK || !outOK {
		s, err := a.status(ctx, name)
		if err != nil {
			return err
		}
		return a.printStatus(s, name, format)
	}
	fetch := func(ctx context.Context) ([]api.Status, error) {
		s, err := a.status(ctx, name)
		return []api.Status{s}, err
	}
	return tui.Watch(ctx, in, out, fetch, tui.WatchOptions{Color: a.color(), Wide: format == formatWide})
}

func (a *app) streamStatus(ctx context.Context, name string) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		s, err := a.status(ctx, name)
		if err != nil {
			return err
		}
		if err := a.printLine("Status", s); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// width returns the terminal's width, or 0 if stdout is not a terminal.
func (a *app) width() int {
	out, ok := terminal(a.stdout)
	if !ok {
		return 0
	}
	width, _ := tui.Size(out)
	return width
}

func (a *app) color() bool {
	_, ok := terminal(a.stdout)
	return ok && tui.ColorWanted(a.getenv)
}

func (a *app) tableOptions(wide bool) tui.Options {
	return tui.Options{Color: a.color(), Wide: wide, ASCII: a.graph() == graphASCII, Now: time.Now()}
}
