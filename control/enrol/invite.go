package enrol

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/tunnel/peer"
)

// InviteFor creates a ticket. object is the UID of the cluster object that it is for, which is
// stored with it, or empty.
func (e *Registrar) InviteFor(ctx context.Context, r api.InviteRequest, object string) (api.InviteResponse, error) {
	if err := e.o.Peers.CheckServices("invite --allow", r.Allow); err != nil {
		return api.InviteResponse{}, err
	}
	if r.Name != "" {
		if err := api.CheckName(r.Name); err != nil {
			return api.InviteResponse{}, admin.Usage("invite --name: "+err.Error(), "choose what to call the joiner here")
		}
		if m := e.o.Peers.Load().ByName(r.Name); m != nil && (m.FromFile || r.For != "" && r.For != m.Key.String()) {
			return api.InviteResponse{}, admin.Conflict(fmt.Sprintf("invite --name: there is a peer %s already", r.Name), "choose another name, or remove that peer first")
		}
	}
	v := ticket.Invitation{Name: r.Name, TTL: time.Duration(r.TTL), Allow: roster.Sorted(r.Allow), Approve: r.Approve, Object: object}
	if r.For != "" {
		k, err := peer.ParsePublicKey(r.For)
		if err != nil {
			return api.InviteResponse{}, admin.Usage("invite --for: "+err.Error(), "the joiner's `postern key pub` or `postern status` shows it")
		}
		v.For = k
	}
	var warnings []string
	ctx, cancel := e.o.While(ctx)
	defer cancel()
	v.Candidates, warnings = e.o.Paths.OwnCandidates(ctx)
	if len(v.Candidates) == 0 {
		warnings = append(warnings, "this gateway knows no address of its own, so the joiner cannot dial it: set spec.discovery.advertise, or run `postern accept` with the reply that join prints")
	}
	if cfg := e.o.Peers.Config(); slices.Contains(v.Allow, api.ServiceAPIServer) && cfg.Services.APIServer == nil {
		warnings = append(warnings, "this gateway has no API server to offer: set spec.services.apiServer")
	}
	if m := e.o.Peers.Load().ByName(r.Name); m != nil {
		warnings = append(warnings, fmt.Sprintf("there is a peer %s already: the ticket is of no use before `postern peer remove %s`", m.Name, m.Name))
	} else if h := e.o.Peers.HolderOf(v.For); !v.For.IsZero() && h != nil {
		warnings = append(warnings, "--for is "+h.What+": the ticket is of no use while that is so")
	}
	user := ""
	if r.Name != "" {
		user = e.o.UserFor(r.Name)
		if err := e.o.Peers.Reserved(r.Name, v.For); err != nil {
			warnings = append(warnings, fmt.Sprintf("only the key that this name belongs to can take it: %v", err))
		}
	}
	var t ticket.Ticket
	var info ticket.Info
	// The one-time peer is in the tunnel before the ticket is returned.
	if err := e.o.Peers.Change(func(c *roster.Change) (err error) {
		if t, info, err = e.o.Peers.Book().Invite(time.Now(), v); err != nil {
			return err
		}
		return c.Refresh()
	}); err != nil {
		return api.InviteResponse{}, problem("invite", err)
	}
	text, err := t.Encode()
	if err != nil {
		return api.InviteResponse{}, problem("invite", err)
	}
	return api.InviteResponse{
		Ticket: text, ID: info.ID.String(), ExpiresAt: info.ExpiresAt.UTC(),
		Candidates: shown(v.Candidates), User: user, Warnings: warnings,
	}, nil
}
