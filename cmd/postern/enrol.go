package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/tui"
	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	defaultTicketTTL = time.Hour
	// defaultWait is long enough for a handshake with every candidate and the exchange
	// that follows, over a slow link.
	defaultWait = 30 * time.Second
)

func (a *app) inviteCommand() *cobra.Command {
	r := api.InviteRequest{}
	var ttl time.Duration
	c := &cobra.Command{
		Use:   "invite",
		Short: "Make a one-time ticket that lets another gateway join this one",
		Long: "Print a ticket. Whoever holds it may join once, so hand it over as you would a password. " +
			"The ticket alone goes to stdout, what to do with it to stderr.",
		Example: "  postern invite | ssh other-cluster postern join -",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkInvite(r, ttl); err != nil {
				return err
			}
			r.TTL = api.Duration(ttl)
			answer, err := a.client().Invite(c.Context(), r)
			if err != nil {
				return err
			}
			fmt.Fprintln(a.stdout, answer.Ticket)
			a.inviteAdvice(r, answer)
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&r.Name, "name", "", "what the joiner will be called here (default: its own `name`)")
	f.DurationVar(&ttl, "ttl", defaultTicketTTL, "how long the ticket is good")
	f.StringVar(&r.For, "for", "", "bind the ticket to one public `key`")
	f.StringSliceVar(&r.Allow, "allow", []string{api.ServiceAuth, api.ServiceAPIServer}, "`services` here that the joiner may reach")
	f.BoolVar(&r.Approve, "approve", false, "the joiner counts only after postern peer approve")
	return c
}

func checkInvite(r api.InviteRequest, ttl time.Duration) error {
	if err := checkOptionalName(r.Name); err != nil {
		return err
	}
	if ttl <= 0 {
		return usagef("such as 1h", "--ttl %s leaves no time to join", ttl)
	}
	if r.For != "" {
		if _, err := peer.ParsePublicKey(r.For); err != nil {
			return usagef("postern status shows it at the other gateway", "--for: %w", err)
		}
	}
	return nil
}

func checkOptionalName(name string) error {
	if name == "" {
		return nil
	}
	if err := api.CheckName(name); err != nil {
		return usagef("", "--name: %w", err)
	}
	return nil
}

// inviteAdvice says on stderr what to do with the ticket.
func (a *app) inviteAdvice(r api.InviteRequest, answer api.InviteResponse) {
	e := a.stderr
	fmt.Fprintf(e, "At the other gateway, before %s: postern join TICKET (or postern join - with the ticket on stdin).\n",
		answer.ExpiresAt.UTC().Format(time.RFC3339))
	fmt.Fprintf(e, "The joiner may reach here: %s.\n", orNothing(r.Allow))
	if r.Approve {
		fmt.Fprintln(e, "It then waits for postern peer approve NAME, which asks for the fingerprint that join prints there.")
	}
	switch {
	case answer.User != "":
		a.userAdvice("the joiner", answer.User)
	case r.Name == "" && slices.Contains(r.Allow, api.ServiceAuth) && slices.Contains(r.Allow, api.ServiceAPIServer):
		fmt.Fprintln(e, "Its user in this cluster will have its key's fingerprint in it, which postern peer show says; with --name NAME it can be bound now.")
	}
	var at []string
	for _, c := range answer.Candidates {
		at = append(at, tui.Printable(c.Address))
	}
	if len(at) > 0 {
		fmt.Fprintf(e, "It will look for this gateway at: %s.\n", strings.Join(at, ", "))
	}
	for _, w := range answer.Warnings {
		fmt.Fprintf(e, "warning: %s\n", tui.Printable(w))
	}
}

// userAdvice says on stderr what RBAC knows a peer by.
func (a *app) userAdvice(who, user string) {
	if user != "" {
		fmt.Fprintf(a.stderr, "In this cluster %s is the user %s.\n", who, tui.Printable(user))
	}
}

func orNothing(services []string) string {
	if len(services) == 0 {
		return "nothing"
	}
	return tui.Printable(strings.Join(services, ", "))
}

func (a *app) joinCommand() *cobra.Command {
	r := api.JoinRequest{}
	var (
		wait  time.Duration
		local []string
	)
	c := &cobra.Command{
		Use:   "join TICKET|-",
		Short: "Enrol with the gateway that made the ticket",
		Long: "Redeem a ticket. When the gateway that made it does not answer within --wait (it may be the " +
			"one behind a NAT), print the command to run there, which makes it dial, and exit 1. This gateway " +
			"waits for the call, and goes on trying until the ticket expires or it is stopped.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			var err error
			if err = checkOptionalName(r.Name); err != nil {
				return err
			}
			if r.Local, err = parseLocal(local, false); err != nil {
				return err
			}
			if wait < 0 {
				return usagef("such as 30s", "--wait %s is negative", wait)
			}
			if r.Ticket, err = a.secretArgument(args[0], "ticket"); err != nil {
				return err
			}
			r.Wait = api.Duration(wait)
			return a.join(c, r, wait)
		},
	}
	f := c.Flags()
	f.StringVar(&r.Name, "name", "", "what to call the other gateway here (default: its own `name`)")
	f.DurationVar(&wait, "wait", defaultWait, "how long to wait for an answer")
	f.StringSliceVar(&r.Allow, "allow", nil, "`services` here that the other side may reach (default none)")
	f.StringSliceVar(&local, "local", nil, "listen here for a service of the other side, as `SERVICE=IP:PORT`")
	return c
}

func (a *app) join(c *cobra.Command, r api.JoinRequest, wait time.Duration) error {
	t, err := ticket.Decode(r.Ticket)
	if err != nil {
		return usagef("", "join: %w", err)
	}
	fmt.Fprintf(a.stderr, "The ticket is %s's and grants: %s. Granted in return: %s.\n", tui.Printable(t.Name), orNothing(t.Allow), orNothing(r.Allow))
	answer, err := a.client().Join(c.Context(), r)
	if err != nil {
		return err
	}
	name := tui.Printable(answer.Peer)
	if len(r.Allow) > 0 {
		a.userAdvice(name, answer.User)
	}
	switch answer.Outcome {
	case api.JoinReply:
		fmt.Fprintf(a.stdout, "postern accept %s\n", answer.Reply)
		return failedf("if it is down, this gateway joins when it is back, until the ticket expires; if nobody can reach it, run the printed command there, which dials this gateway",
			"join: %s did not answer within %s: %s", name, wait, answer.Reason)
	case api.JoinPending:
		fmt.Fprintf(a.stdout, "registered with %s, which has yet to approve\n", name)
		fmt.Fprintf(a.stderr, "There, compare the fingerprint %s and run postern peer approve.\n", tui.Printable(answer.Fingerprint))
		return nil
	}
	fmt.Fprintf(a.stdout, "joined %s; may reach there: %s\n", name, orNothing(answer.Granted))
	return nil
}

func (a *app) acceptCommand() *cobra.Command {
	var wait time.Duration
	c := &cobra.Command{
		Use:   "accept REPLY|-",
		Short: "Dial a gateway that could not reach this one (it printed the reply)",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if wait < 0 {
				return usagef("such as 30s", "--wait %s is negative", wait)
			}
			reply, err := a.secretArgument(args[0], "reply")
			if err != nil {
				return err
			}
			if _, err := ticket.DecodeReply(reply); err != nil {
				return usagef("", "accept: %w", err)
			}
			answer, err := a.client().Accept(c.Context(), api.AcceptRequest{Reply: reply, Wait: api.Duration(wait)})
			if err != nil {
				return err
			}
			name := tui.Printable(answer.Peer)
			a.userAdvice(name, answer.User)
			if !answer.Connected {
				return failedf("this gateway keeps dialling; see postern status "+name, "accept: %s has not answered within %s: %s", name, wait, answer.Reason)
			}
			fmt.Fprintf(a.stdout, "connected to %s\n", name)
			return nil
		},
	}
	c.Flags().DurationVar(&wait, "wait", defaultWait, "how long to wait for an answer")
	return c
}
