package main

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tui"
)

func (a *app) netCheckCommand() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use:   "netcheck",
		Short: "Show which kind of NAT this gateway is behind, and what that means for peering",
		Long: "Query the configured STUN and TURN servers again. Show how the NAT in front of this gateway maps and " +
			"filters (in the terms of RFC 4787), its public addresses, whether each server answers, and what this " +
			"means for peering. Exits with 1 if a configured server does not answer.",
		Example: "  postern netcheck\n  postern netcheck -o json | jq -r .mapping",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			n, err := a.client().NetCheck(c.Context())
			if err != nil {
				return err
			}
			if format == formatText {
				_, err = fmt.Fprint(a.stdout, tui.NetCheck(n, a.width(), a.tableOptions(false)))
			} else {
				err = a.print(format, "NetCheck", n)
			}
			if err != nil {
				return err
			}
			return silentServer(n)
		},
	}
	outputFlag(c, &format, formatText, formatJSON, formatYAML)
	return c
}

// silentServer returns an error about the first server that does not work.
func silentServer(n api.NetCheck) error {
	const hint = "postern netcheck shows all of them"
	for _, s := range n.STUNServers {
		if s.Error != "" {
			return failedf(hint, "netcheck: STUN server %s: %s", cmp.Or(s.Address, s.Name), s.Error)
		}
	}
	for _, s := range n.TURNServers {
		if s.Error != "" {
			return failedf(hint, "netcheck: TURN server %s: %s", s.Address, s.Error)
		}
	}
	if n.Proxy != nil {
		for _, t := range n.Proxy.Targets {
			if t.Error != "" {
				return failedf(hint, "netcheck: %s", t.Error)
			}
		}
	}
	return nil
}
