package screen

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/tui/cell"
)

// ticketTTL is the lifetime of tickets created here, as of `postern invite`.
const ticketTTL = time.Hour

// commandInvite creates a ticket.
func (m *model) commandInvite(argument string) tea.Cmd {
	name, list, named := strings.Cut(argument, " ")
	if name != "" && api.CheckName(name) != nil {
		return m.say("no gateway can be called " + name)
	}
	services := []string{api.ServiceAuth, api.ServiceAPIServer}
	if named {
		var err error
		if services, err = servicesIn(list); err != nil {
			return m.say(err.Error())
		}
	}
	c := change{title: "invite a gateway", command: "postern invite --ttl 1h --allow " + argumentOf(services)}
	who := "by its own name"
	if name != "" {
		c.command += " --name " + name
		who = "as " + name
	}
	c.effect = fmt.Sprintf("Make a ticket, good for an hour and for one gateway. Whoever has it may join %s, so hand it over as you would "+
		"a password. The joiner may reach here: %s.", who, orNothing(services))
	c.do = func(ctx context.Context, o Operator) (outcome, error) {
		r, err := o.Invite(ctx, api.InviteRequest{Name: name, TTL: api.Duration(ticketTTL), Allow: services})
		said := "at the other gateway, before " + r.ExpiresAt.UTC().Format(time.RFC3339) + ": postern join with this ticket"
		if len(r.Warnings) > 0 {
			said += "; " + strings.Join(r.Warnings, "; ")
		}
		return outcome{said: said, copy: copyMsg{r.Ticket, "the ticket"}, code: strings.ToUpper(r.Ticket)}, err
	}
	return m.propose(c)
}

// commandJoin redeems a ticket, which may be pasted with the command around it.
func (m *model) commandJoin(argument string) tea.Cmd {
	text := ticket.Find(argument)
	t, err := ticket.Decode(text)
	if err != nil {
		return m.say("join: " + err.Error())
	}
	var services []string
	if _, rest, whole := strings.Cut(argument, text); whole {
		if services, err = servicesIn(strings.TrimLeft(rest, "'`\"")); err != nil {
			return m.say(err.Error())
		}
	}
	c := change{title: "join " + t.Name, command: "postern join -"}
	if len(services) > 0 {
		c.command += " --allow " + argumentOf(services)
	}
	c.effect = fmt.Sprintf("Join %s, whose ticket grants: %s. It may reach here: %s. The command reads the ticket from its input.", t.Name, orNothing(t.Allow), orNothing(services))
	c.do = func(ctx context.Context, o Operator) (outcome, error) {
		r, err := o.Join(ctx, api.JoinRequest{Ticket: text, Wait: api.Duration(peersWait), Allow: services})
		switch {
		case err != nil:
		case r.Outcome == api.JoinReply:
			return outcome{said: r.Peer + " does not answer: " + r.Reason + "; run there what follows, which dials this gateway", copy: copyMsg{"postern accept " + r.Reply, "the command for there"}}, nil
		case r.Outcome == api.JoinPending:
			return outcome{said: "registered with " + r.Peer + ", which has yet to approve; compare there the fingerprint " + r.Fingerprint}, nil
		}
		return outcome{said: "joined " + r.Peer + "; may reach there: " + orNothing(r.Granted)}, err
	}
	return m.propose(c)
}

// commandAccept dials a gateway by the reply that it printed.
func (m *model) commandAccept(argument string) tea.Cmd {
	text := ticket.Find(argument)
	r, err := ticket.DecodeReply(text)
	if err != nil {
		return m.say("accept: " + err.Error())
	}
	return m.propose(change{
		title: "accept " + r.Name, command: "postern accept -",
		effect: "Dial " + r.Name + ", which could not reach this gateway with its ticket. The command reads the reply from its input.",
		do: func(ctx context.Context, o Operator) (outcome, error) {
			a, err := o.Accept(ctx, api.AcceptRequest{Reply: text, Wait: api.Duration(peersWait)})
			if err == nil && !a.Connected {
				err = fmt.Errorf("%s has not answered yet, and is dialled again: %s", a.Peer, a.Reason)
			}
			return outcome{said: "connected to " + a.Peer}, err
		},
	})
}

// commandRotate rotates the gateway's key.
func (m *model) commandRotate(string) tea.Cmd {
	return m.propose(change{
		title: "rotate the key", command: "postern key rotate",
		effect: fmt.Sprintf("Tell the peers (%d) this gateway's next key, and take it once all of them know it. The gateway then restarts, which "+
			"ends open connections. If one cannot be told nothing changes.", len(m.data.status.Peers)),
		do: func(ctx context.Context, o Operator) (outcome, error) {
			r, err := o.KeyRotate(ctx, api.KeyRotateRequest{Wait: api.Duration(peersWait)})
			if err == nil && !r.Rotated {
				var untold []string
				for _, u := range r.Untold {
					untold = append(untold, u.Peer+" ("+u.Reason+")")
				}
				err = errors.New("the old key stays in force: the next one is not known to " + strings.Join(untold, ", "))
			}
			said := append([]string{"the key is now " + r.PublicKey + "; the gateway restarts"}, r.Warnings...)
			return outcome{said: strings.Join(said, "; ")}, err
		},
	})
}

// commandConfirm confirms the configuration that is on trial.
func (m *model) commandConfirm(string) tea.Cmd {
	if m.data.status.Gateway.ConfigUndoneAt == nil {
		return m.say("no configuration is on trial")
	}
	return m.propose(change{
		title: "keep the configuration", command: "postern config confirm",
		effect: "The configuration that was read with --confirm-within stays. Without it the one before returns.",
		do: func(ctx context.Context, o Operator) (outcome, error) {
			return outcome{said: "the configuration stays"}, o.ConfigConfirm(ctx)
		},
	})
}

// pingLimit bounds an echo, which goes through the tunnel by default.
const (
	pingLimit = 10 * time.Second
	pingLayer = "overlay"
)

// ofPeer returns a command that acts on a peer by name, by default the selected one.
func ofPeer(do func(m *model, name string) tea.Cmd) func(*model, string) tea.Cmd {
	return func(m *model, name string) tea.Cmd {
		if p := m.data.peer(); name == "" && p != nil {
			name = p.Name
		}
		for _, p := range m.data.status.Peers {
			if p.Name == name {
				return do(m, name)
			}
		}
		return m.sayNoPeer(name)
	}
}

func (m *model) ping(name string) tea.Cmd {
	source := m.sources[m.source].Source
	return tea.Batch(m.say("ping "+name+" …"), m.tasks.run(pingLimit, func(ctx context.Context) tea.Msg {
		r, err := source.Ping(ctx, name, api.PingRequest{Layer: pingLayer, Seq: 1})
		switch {
		case err != nil:
			return actedMsg("ping " + name + ": " + err.Error())
		case r.Error != "":
			return actedMsg("ping " + name + ": " + r.Error)
		}
		return actedMsg(onOneLine([]string{"ping " + name + ": " + cell.RTT(r.RTTSeconds), r.Path + " " + r.Remote}))
	}))
}

// throughputCheck is the check that measures a path's throughput. It only runs on request.
const throughputCheck = "throughput"

// measure makes the gateways measure the throughput of the path between them, after confirmation:
// it briefly takes the path from others.
func (m *model) measure(name string) tea.Cmd {
	if api.CheckName(name) != nil {
		return m.say(strangeName)
	}
	source := m.sources[m.source].Source
	return m.propose(change{
		title: "measure the path to " + name, command: "postern check " + name + " --throughput",
		effect: "Send as much as the path carries, for a second each way and 64 MB at most. Others have less of it meanwhile.",
		do: func(ctx context.Context, _ Operator) (outcome, error) {
			r, err := source.Check(ctx, api.CheckRequest{Peer: name, Throughput: true})
			if err != nil {
				return outcome{}, err
			}
			i := slices.IndexFunc(r.Checks, func(c api.Check) bool { return c.Peer == name && c.Name == throughputCheck })
			if i < 0 {
				return outcome{}, errors.New("the gateway does not measure throughput: it runs an older version")
			}
			c := &r.Checks[i]
			if c.Verdict.Verdict != api.OK {
				return outcome{}, errors.New(onOneLine([]string{cmp.Or(c.Cause, "it depends on "+c.DependsOn), c.Fix}))
			}
			return outcome{said: c.Cause}, nil
		},
	})
}
