package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/way"
	"github.com/postern-dev/postern/tui"
)

// pathDocument is the output of `path -o json`.
type pathDocument struct {
	Kind       string          `json:"kind"`
	Peer       string          `json:"peer"`
	State      api.PeerState   `json:"state"`
	Path       api.Path        `json:"path"`
	Candidates []api.Candidate `json:"candidates"`
	NextTry    *time.Time      `json:"nextTry,omitempty"`
	// Way is what --diagram draws.
	Way way.Way `json:"way"`
}

func (a *app) pathCommand() *cobra.Command {
	var format string
	var diagram bool
	c := &cobra.Command{
		Use:   "path PEER",
		Short: "Show every path to a peer, which one is in use, and why",
		Long: "Show every candidate address of the peer: its source, its state, and its round trip or the reason why it " +
			"cannot be used. Also show which one is in use and why, and the latest path changes. With --diagram, draw " +
			"the path to the peer instead: this gateway, its NAT, what is in between, the peer's side and the " +
			"services at both ends. The diagram shows what works in each direction, where the path breaks and why, " +
			"according to the latest checks. Exits with 1 if there is no path.",
		Example:           "  postern path cloud\n  postern path cloud --diagram",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completePeer,
		RunE: func(c *cobra.Command, args []string) error {
			s, err := a.client().Status(c.Context())
			if err != nil {
				return err
			}
			p, err := findPeer(s, args[0])
			if err != nil {
				return err
			}
			if format == formatText && !diagram {
				_, err = fmt.Fprint(a.stdout, tui.Path(p, a.width(), a.tableOptions(false)))
			} else {
				err = a.printWay(c.Context(), format, s, p)
			}
			if err == nil && (p.Path.Kind == "" || p.Path.Kind == api.PathNone) {
				err = failedf("postern netcheck shows this gateway's own side", "path: there is none to %s: %s", p.Name, cmp.Or(p.Path.Reason, "nothing has answered yet"))
			}
			return err
		},
	}
	outputFlag(c, &format, formatText, formatJSON, formatYAML)
	c.Flags().BoolVar(&diagram, "diagram", false, "draw the path to the peer, and where it breaks; -o json and yaml always have it")
	return c
}

// printWay writes the way to a peer as a drawing, or as a document with everything that is known
// about it.
func (a *app) printWay(ctx context.Context, format string, s api.Status, p api.PeerStatus) error {
	r, err := a.client().Checks(ctx)
	if err != nil {
		return err
	}
	services, err := a.client().ClusterServices(ctx, p.Name)
	if err != nil { // an earlier gateway does not know of them
		services.Services = nil
	}
	w := way.Of(&s, &p, r.Checks, services.Services)
	if format == formatText {
		_, err = fmt.Fprint(a.stdout, tui.Diagram(w, a.width(), a.tableOptions(false)))
		return err
	}
	return a.print(format, "Path", pathDocument{Kind: "Path", Peer: p.Name, State: p.State, Path: p.Path, Candidates: p.Candidates, NextTry: p.NextTry, Way: w})
}
