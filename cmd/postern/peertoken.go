package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/control/api"
)

func (a *app) peerToken() *cobra.Command {
	var ttl time.Duration
	c := &cobra.Command{
		Use:   "token NAME",
		Short: "Print a token (a secret) that identifies a peer to auth outside the tunnel",
		Long: "Print a token for a peer whose mode is OutOfBand. Store it in the file that the peer's gateway names in " +
			"outOfBand.tokenFile. The token is valid only for this gateway's auth service, until it expires, the peer " +
			"is removed, or the key of either side changes.",
		Example:           "  postern peer token edge > token && chmod 600 token",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completePeer,
		RunE: func(c *cobra.Command, args []string) error {
			if ttl < 0 || ttl == 0 && c.Flags().Changed("ttl") {
				return usagef("such as 2160h", "--ttl %s leaves no time to use it", ttl)
			}
			got, err := a.client().PeerToken(c.Context(), args[0], api.PeerTokenRequest{TTL: api.Duration(ttl)})
			if err != nil {
				return err
			}
			fmt.Fprintf(a.stderr, "postern: the token is valid until %s; renew it before then\n", got.NotAfter.UTC().Format(time.RFC3339))
			_, err = fmt.Fprintln(a.stdout, got.Token)
			return err
		},
	}
	c.Flags().DurationVar(&ttl, "ttl", 0, "how long it is valid, at most 8784h (default 2160h)")
	return c
}
