package main

import (
	"cmp"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tui"
)

// pathDocument is what `path -o json` prints.
type pathDocument struct {
	Kind       string          `json:"kind"`
	Peer       string          `json:"peer"`
	State      api.PeerState   `json:"state"`
	Path       api.Path        `json:"path"`
	Candidates []api.Candidate `json:"candidates"`
	NextTry    *time.Time      `json:"nextTry,omitempty"`
}

func (a *app) pathCommand() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use:   "path PEER",
		Short: "Show every way to a peer, the one in use, and why",
		Long: "Show every candidate address of the peer with its source, its state and its round trip or the " +
			"reason why it does not serve, which of them is in use and why that one won, and what happened to " +
			"the path lately. Exit 1 when there is no path.",
		Example:           "  postern path cloud",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completePeer,
		RunE: func(c *cobra.Command, args []string) error {
			s, err := a.status(c.Context(), args[0])
			if err != nil {
				return err
			}
			p := s.Peers[0]
			if format == formatText {
				_, err = fmt.Fprint(a.stdout, tui.Path(p, a.width(), a.tableOptions(false)))
			} else {
				err = a.print(format, "Path", pathDocument{Kind: "Path", Peer: p.Name, State: p.State, Path: p.Path, Candidates: p.Candidates, NextTry: p.NextTry})
			}
			if err == nil && (p.Path.Kind == "" || p.Path.Kind == api.PathNone) {
				err = failedf("postern netcheck shows this gateway's own side", "path: there is none to %s: %s", p.Name, cmp.Or(p.Path.Reason, "nothing has answered yet"))
			}
			return err
		},
	}
	outputFlag(c, &format, formatText, formatJSON, formatYAML)
	return c
}
