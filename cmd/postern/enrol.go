package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/tui"
	"github.com/postern-dev/postern/tunnel/peer"
)

func (a *app) inviteCommand() *cobra.Command {
	r := api.InviteRequest{}
	var (
		ttl    time.Duration
		format string
		code   bool
	)
	c := &cobra.Command{
		Use:   "invite",
		Short: "Create a one-time ticket that lets another gateway join this one",
		Long: "Print a ticket. Anyone who has it can join once, so share it as you would a password. The ticket goes to " +
			"stdout. Instructions, and the QR code with --qr, go to stderr.",
		Example: "  postern invite --name edge --ttl 10m\n  postern invite --qr\n  postern invite | ssh other-cluster postern join -\n" +
			"  postern invite -o json | jq -r .ticket",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkInvite(r, ttl); err != nil {
				return err
			}
			if code && format == formatJSON {
				return usagef("leave one out", "--qr is for people, and -o json for programs")
			}
			if discards(a.stdout) && !code {
				return usagef("leave it open, or redirect it to a file", "invite: nobody would see the ticket: stdout is closed or %s, so none was created", os.DevNull)
			}
			r.TTL = api.Duration(ttl)
			return a.invite(c.Context(), r, format, code)
		},
	}
	f := c.Flags()
	f.StringVar(&r.Name, "name", "", "`name` of the joiner here (default: the one it gives itself)")
	f.DurationVar(&ttl, "ttl", ticket.DefaultTTL, "how long the ticket is valid")
	f.StringVar(&r.For, "for", "", "bind the ticket to one public `key`")
	f.StringSliceVar(&r.Allow, "allow", []string{api.ServiceAuth, api.ServiceAPIServer}, "local `services` that the joiner may reach")
	f.BoolVar(&r.Approve, "approve", false, "admit the joiner only after postern peer approve")
	f.BoolVar(&code, "qr", false, "draw the ticket as a QR code too")
	complete(c, "allow", a.servicesHere)
	outputFlag(c, &format, formatText, formatJSON)
	return c
}

// invite prints a ticket.
func (a *app) invite(ctx context.Context, r api.InviteRequest, format string, code bool) error {
	done := a.meanwhile("Waiting for the gateway …")
	answer, err := a.client().Invite(ctx, r)
	done()
	if err != nil {
		return err
	}
	if format == formatJSON {
		err = a.print(format, "Invitation", answer)
	} else {
		_, err = fmt.Fprintln(a.stdout, answer.Ticket)
	}
	if err != nil {
		return failedf("anyone who has it can use it until "+answer.ExpiresAt.UTC().Format(time.RFC3339)+"; create another",
			"invite: the ticket could not be written: %w", err)
	}
	if format == formatJSON {
		return nil
	}
	if code {
		fmt.Fprint(a.stderr, a.ticketCode(answer.Ticket))
	}
	a.inviteAdvice(r, answer)
	return nil
}

// ticketCode draws a ticket as a QR code, in upper case: this takes less room, and is equivalent.
func (a *app) ticketCode(ticket string) string {
	width, height := 0, 0
	err, there := terminal(a.stderr)
	if there {
		width, height = tui.Size(err)
	}
	return tui.Code(strings.ToUpper(ticket), width, height, tui.Options{Color: there && tui.ColorWanted(a.getenv), ASCII: a.graph() == graphASCII})
}

func checkInvite(r api.InviteRequest, ttl time.Duration) error {
	if err := checkOptionalName(r.Name); err != nil {
		return err
	}
	if ttl < ticket.MinTTL {
		return usagef(fmt.Sprintf("at least %s, such as 1h", ticket.MinTTL), "--ttl %s leaves no time to join", ttl)
	}
	if ttl > ticket.MaxTTL {
		return usagef(fmt.Sprintf("at most %s", ticket.MaxTTL), "--ttl %s is too long for a secret", ttl)
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

// inviteAdvice prints to stderr what to do with the ticket.
func (a *app) inviteAdvice(r api.InviteRequest, answer api.InviteResponse) {
	e := a.stderr
	fmt.Fprintf(e, "At the other gateway, before %s: postern join TICKET (or postern join - with the ticket on stdin).\n",
		answer.ExpiresAt.UTC().Format(time.RFC3339))
	fmt.Fprintf(e, "The joiner may reach here: %s.\n", orNothing(r.Allow))
	if r.Approve {
		fmt.Fprintln(e, "The joiner then waits for postern peer approve NAME, which asks for the fingerprint that join prints there.")
	}
	switch {
	case answer.User != "":
		a.userAdvice("the joiner", answer.User)
	case r.Name == "" && slices.Contains(r.Allow, api.ServiceAuth) && slices.Contains(r.Allow, api.ServiceAPIServer):
		fmt.Fprintln(e, "The joiner's user in this cluster will include its key's fingerprint (see postern peer show); with --name NAME you could bind it now.")
	}
	var at []string
	for _, c := range answer.Candidates {
		at = append(at, tui.Printable(c.Address))
	}
	if len(at) > 0 {
		fmt.Fprintf(e, "The joiner will look for this gateway at: %s.\n", strings.Join(at, ", "))
	}
	for _, w := range answer.Warnings {
		fmt.Fprintf(e, "warning: %s\n", tui.Printable(w))
	}
}

// userAdvice prints to stderr the peer's user name in RBAC.
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
		wait   time.Duration
		local  []string
		format string
	)
	c := &cobra.Command{
		Use:   "join TICKET|-",
		Short: "Enrol with the gateway that created the ticket",
		Long: "Redeem a ticket. If the gateway that created it does not answer within --wait (it may itself be behind a " +
			"NAT), join prints a command to run there, which makes that gateway dial this one, and exits with 1. This " +
			"gateway keeps trying, and keeps waiting to be dialled, until the ticket expires or the gateway stops. " +
			"Paste the ticket as you received it: quotes, line breaks and the whole command line are accepted.",
		Example: "  postern join postern1cagq…\n  postern join - < ticket\n" +
			"  postern join postern1cagq… --name hub --local apiServer=127.0.0.1:7443",
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			var err error
			if err = checkOptionalName(r.Name); err != nil {
				return err
			}
			if r.Local, err = parseLocal(local, false); err != nil {
				return err
			}
			if wait <= 0 {
				return usagef("such as 30s", "--wait %s leaves no time for an answer", wait)
			}
			text, err := a.secretArgument(args, "ticket")
			if err != nil {
				return err
			}
			r.Ticket, r.Wait = ticket.Find(text), api.Duration(wait)
			return a.join(c, r, wait, format)
		},
	}
	f := c.Flags()
	f.StringVar(&r.Name, "name", "", "`name` of the other gateway here (default: the one it gives itself)")
	f.DurationVar(&wait, "wait", api.DefaultWait, "how long to wait for an answer")
	f.StringSliceVar(&r.Allow, "allow", nil, "local `services` that the other side may reach (default none)")
	f.StringSliceVar(&local, "local", nil, "listen here for a service of the other side, as `SERVICE=IP:PORT`")
	complete(c, "allow", a.servicesHere)
	outputFlag(c, &format, formatText, formatJSON)
	return c
}

func (a *app) join(c *cobra.Command, r api.JoinRequest, wait time.Duration, format string) error {
	t, err := ticket.Decode(r.Ticket)
	if err != nil {
		return usagef("", "join: %w", err)
	}
	fmt.Fprintf(a.stderr, "The ticket is %s's and grants: %s. Granted in return: %s.\n", tui.Printable(t.Name), orNothing(t.Allow), orNothing(r.Allow))
	done := a.meanwhile(fmt.Sprintf("Waiting up to %s for an answer of %s …", wait, tui.Printable(t.Name)))
	answer, err := a.client().Join(c.Context(), r)
	done()
	if err != nil {
		return err
	}
	name := tui.Printable(answer.Peer)
	if format == formatJSON {
		if err := a.print(format, "Join", answer); err != nil || answer.Outcome != api.JoinReply {
			return err
		}
	} else if len(r.Allow) > 0 {
		a.userAdvice(name, answer.User)
	}
	switch answer.Outcome {
	case api.JoinReply:
		if format != formatJSON {
			fmt.Fprintf(a.stdout, "postern accept %s\n", answer.Reply)
		}
		hint := "if it is down, this gateway joins when it is back, until the ticket expires; if it cannot be reached from here, run the printed command there, which dials this gateway"
		if len(t.Candidates) == 0 {
			hint = "run the printed command there, which dials this gateway"
		}
		if answer.Fingerprint != "" {
			fmt.Fprintf(a.stderr, "%s then has to approve this gateway: there, compare the fingerprint %s and run postern peer approve.\n", name, tui.Printable(answer.Fingerprint))
		}
		return failedf(hint, "join: waited %s for %s: %s", wait, name, answer.Reason)
	case api.JoinPending:
		fmt.Fprintf(a.stdout, "registered with %s, which has yet to approve\n", name)
		fmt.Fprintf(a.stderr, "There, compare the fingerprint %s and run postern peer approve.\n", tui.Printable(answer.Fingerprint))
		return nil
	}
	fmt.Fprintf(a.stdout, "joined %s; may reach there: %s\n", name, orNothing(answer.Granted))
	a.warnListeners(c.Context(), answer.Peer, r.Local)
	return nil
}

// warnListeners warns on stderr of requested listeners that could not be opened.
func (a *app) warnListeners(ctx context.Context, name string, asked map[string]string) {
	if len(asked) == 0 {
		return
	}
	s, err := a.status(ctx, name)
	if err != nil {
		return // the join is what counts
	}
	for _, l := range s.Peers[0].Local {
		if asked[l.Service] != "" && l.Error != "" {
			fmt.Fprintf(a.stderr, "warning: nothing listens for %s at %s: %s (choose another address: postern peer local %s %s=IP:PORT)\n",
				tui.Printable(l.Service), tui.Printable(l.Address), tui.Printable(l.Error), tui.Printable(name), tui.Printable(l.Service))
		}
	}
}

func (a *app) acceptCommand() *cobra.Command {
	var (
		wait   time.Duration
		format string
	)
	c := &cobra.Command{
		Use:     "accept REPLY|-",
		Short:   "Dial a gateway that could not reach this one, using the reply it printed",
		Example: "  postern accept postern1qefq…\n  ssh other-cluster postern join postern1cagq… | postern accept -",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if wait <= 0 {
				return usagef("such as 30s", "--wait %s leaves no time for an answer", wait)
			}
			text, err := a.secretArgument(args, "reply")
			if err != nil {
				return err
			}
			reply := ticket.Find(text)
			if _, err := ticket.DecodeReply(reply); err != nil {
				return usagef("", "accept: %w", err)
			}
			done := a.meanwhile(fmt.Sprintf("Dialling for up to %s …", wait))
			answer, err := a.client().Accept(c.Context(), api.AcceptRequest{Reply: reply, Wait: api.Duration(wait)})
			done()
			if err != nil {
				return err
			}
			name := tui.Printable(answer.Peer)
			if format == formatJSON {
				err = a.print(format, "Acceptance", answer)
			} else {
				a.userAdvice(name, answer.User)
			}
			if err != nil {
				return err
			}
			if !answer.Connected {
				return failedf("see postern status "+name, "accept: %s is not connected: %s", name, answer.Reason)
			}
			if format == formatText {
				fmt.Fprintf(a.stdout, "connected to %s\n", name)
			}
			return nil
		},
	}
	c.Flags().DurationVar(&wait, "wait", api.DefaultWait, "how long to wait for an answer")
	outputFlag(c, &format, formatText, formatJSON)
	return c
}
