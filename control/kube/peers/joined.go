package peers

import (
	"context"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/kube/v1alpha1"
	"github.com/postern-dev/postern/control/state"
)

// noListener is stored instead of an address if no listener is wanted.
const noListener = "none"

// follow reconciles the peers of the gateway's state with the objects. It is called with a complete
// list of objects, after these are in force, and reports whether it has changed any.
func (c *Controller) follow(ctx context.Context, list []*candidate) (again bool) {
	byName := map[string]*candidate{}
	for _, x := range list {
		byName[x.object.Name] = x
	}
	joined := map[string]state.Peer{}
	for _, p := range c.gateway.Joined() {
		joined[p.Name] = p
	}
	for _, name := range slices.Sorted(maps.Keys(joined)) {
		var err error
		changed := false
		if x := byName[name]; x == nil {
			changed, err = c.withoutObject(ctx, joined[name])
		} else {
			changed, err = c.withObject(ctx, joined[name], x)
		}
		again = again || changed
		c.complain(name, err)
	}
	for _, x := range list {
		o := x.object
		if _, there := joined[o.Name]; there {
			c.seen(o).hadPeer = true
			continue
		}
		if origin(o) != "" && c.seen(o).hadPeer { // it was removed by command
			err := c.Objects.Delete(ctx, o)
			c.complain(o.Name, err)
			if err == nil {
				x.leaving = true
				c.Log.Info("deleted the object of a removed peer", "peer", o.Name)
			}
		}
	}
	return again
}

// withoutObject creates the object of a peer that never had one, and removes a peer whose object
// was deleted.
func (c *Controller) withoutObject(ctx context.Context, p state.Peer) (changed bool, err error) {
	if p.ObjectKey.IsZero() {
		made, err := c.Objects.Create(ctx, objectFor(p, c.Objects.Namespace()))
		if made {
			c.Log.Info("created an object for a joined peer", "peer", p.Name, "origin", string(p.Origin))
		}
		return false, err // it is recorded when it is seen
	}
	// The list may be outdated, and the object another one by now.
	if gone, err := c.Objects.Gone(ctx, p.Name); err != nil || !gone {
		return false, err
	}
	if err := c.gateway.PeerRemove(ctx, p.Name, true); err != nil {
		return false, err
	}
	c.Log.Info("removed a peer whose object was deleted", "peer", p.Name)
	return true, nil
}

// withObject resolves the differences between a peer and its object.
func (c *Controller) withObject(ctx context.Context, p state.Peer, x *candidate) (changed bool, err error) {
	o := x.object
	switch {
	case o.Spec.PublicKey == p.PublicKey.String():
		if p.ObjectKey != p.PublicKey {
			if err := c.gateway.NoteObject(p.Name, p.PublicKey); err != nil {
				return false, err
			}
		}
	case !p.ObjectKey.IsZero() && p.ObjectKey != p.PublicKey && o.Spec.PublicKey == p.ObjectKey.String():
		// The peer has announced another key under the old one.
		return false, c.Objects.SetSpec(ctx, o, map[string]any{"publicKey": p.PublicKey.String()})
	case origin(o) == "" && x.apart && !o.Spec.Pending:
		// The operator has put another gateway into the object: the old one is gone.
		if err := c.gateway.PeerRemove(ctx, p.Name, true); err != nil {
			return false, err
		}
		c.Log.Info("removed a peer whose object names another gateway", "peer", p.Name, "publicKey", p.PublicKey.String())
		return true, nil
	default:
		return false, nil // its condition says so
	}
	switch {
	case origin(o) == "" || p.Pending == o.Spec.Pending:
		return false, nil
	case p.Pending:
		c.Log.Info("approved a peer by its object", "peer", p.Name)
		// The object names the key that is approved, and no other is.
		return true, c.gateway.PeerApprove(ctx, p.Name, api.PeerApproveRequest{Fingerprint: o.Spec.PublicKey})
	}
	return false, c.Objects.SetSpec(ctx, o, map[string]any{"pending": false})
}

// objectFor returns the object for a peer that joined or was added.
func objectFor(p state.Peer, namespace string) *v1alpha1.Peer {
	o := &v1alpha1.Peer{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion().String(), Kind: v1alpha1.PeerKind},
		ObjectMeta: metav1.ObjectMeta{
			Name: p.Name, Namespace: namespace, Labels: map[string]string{v1alpha1.LabelOrigin: string(p.Origin)},
		},
		Spec: v1alpha1.PeerSpec{
			PublicKey: p.PublicKey.String(), Mode: p.Mode, Allow: slices.Clone(p.Allow), Stock: p.Stock,
			Endpoints: slices.Clone(p.Endpoints), Pending: p.Pending,
		},
	}
	if p.Mode == "" {
		o.Spec.Mode = v1alpha1.ModeInBand
	}
	if o.Labels[v1alpha1.LabelOrigin] == "" {
		o.Labels[v1alpha1.LabelOrigin] = string(state.OriginAdded)
	}
	for _, prefix := range p.AllowedIPs {
		o.Spec.AllowedIPs = append(o.Spec.AllowedIPs, prefix.String())
	}
	local := &v1alpha1.PeerLocal{}
	for service, address := range p.Local {
		switch {
		case address == "" || address == noListener:
		case service == api.ServiceAPIServer:
			local.APIServer = address
		default:
			if local.Named == nil {
				local.Named = map[string]v1alpha1.LocalAddress{}
			}
			local.Named[service] = v1alpha1.LocalAddress(address)
		}
	}
	if local.APIServer != "" || len(local.Named) > 0 {
		o.Spec.Local = local
	}
	return o
}
