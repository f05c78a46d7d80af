package peers

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/control/kube/v1alpha1"
	"github.com/postern-dev/postern/tunnel/peer"
)

// candidate is a Peer object to be applied to the gateway.
type candidate struct {
	object *v1alpha1.Peer
	peer   config.Peer
	// refused says why it is not in force; nil if it is.
	refused *finding
	// noted is a problem that does not prevent it from being in force.
	noted *finding
	// apart: it is neither refused nor in force, such as one that waits for approval.
	apart bool
	// leaving: the object is being deleted.
	leaving bool
}

// inForce reports whether the gateway should have the peer.
func (c *candidate) inForce() bool { return c.refused == nil && !c.apart }

// finding is a problem of one object, with its code.
type finding struct {
	code   catalogue.Code
	params catalogue.Params
}

// text returns cause and fix as one message.
func (f *finding) text() string {
	cause, fix := catalogue.Render(f.code, f.params)
	return message(string(f.code), cause, fix.String())
}

// message returns the text of a condition or an event.
func message(code, cause, fix string) string {
	out := cause
	if code != "" {
		out = code + ": " + cause
	}
	if fix != "" {
		out += ". Fix: " + fix
	}
	return out
}

// found returns a finding about an object.
func found(o *v1alpha1.Peer, code catalogue.Code, detail string) *finding {
	p := catalogue.Params{Peer: o.Name, Detail: detail, Inbound: true}
	p.Namespace, p.Object = o.Namespace, "Peer "+o.Name
	return &finding{code, p}
}

// resolver reads objects. It is used by one goroutine.
type resolver struct {
	named    []config.NamedService
	clusters bool // the gateway takes part in services of clusters
	secrets  *secrets
}

// resolve reads one object independently of others.
func (r *resolver) resolve(ctx context.Context, o *v1alpha1.Peer) *candidate {
	c := &candidate{object: o}
	entry := configured(o)
	var unknown []string
	entry.Allow = slices.DeleteFunc(entry.Allow, func(s string) bool {
		known := s == api.ServiceAuth || s == api.ServiceAPIServer ||
			slices.ContainsFunc(r.named, func(n config.NamedService) bool { return n.Name == s })
		if !known {
			unknown = append(unknown, s)
		}
		return !known
	})
	switch s := o.Spec.Services; {
	case len(unknown) > 0:
		c.noted = found(o, catalogue.GrantWithoutUse, "")
		c.noted.params.Service = strings.Join(unknown, ", ")
	case s != nil && len(s.Export)+len(s.Import) > 0 && !r.clusters:
		c.noted = found(o, catalogue.GrantWithoutUse, "")
		c.noted.params.Field = "spec.services"
	}
	p, err := config.ResolvePeer(entry, r.named)
	if err == nil && p.PublicKey.IsZero() {
		err = errors.New("publicKey: missing (the peer's operator sees it in `postern status` or `postern key pub`)")
	}
	if err != nil {
		c.refused = found(o, catalogue.PeerRefused, "spec."+err.Error())
		return c
	}
	c.peer = p
	c.refused = r.secretsOf(ctx, o, &c.peer)
	return c
}

// configured returns the object as an entry of the configuration file, without the contents of
// Secrets.
func configured(o *v1alpha1.Peer) api.Peer {
	s := &o.Spec
	e := api.Peer{
		Name: o.Name, PublicKey: s.PublicKey, Endpoints: slices.Clone(s.Endpoints), Mode: s.Mode,
		Allow: slices.Clone(s.Allow), Stock: s.Stock, AllowedIPs: slices.Clone(s.AllowedIPs), Labels: labels(o),
	}
	if b := s.OutOfBand; b != nil {
		e.OutOfBand = &api.PeerOutOfBand{AuthURL: b.AuthURL, APIServerURL: b.APIServerURL}
	}
	if l := s.Local; l != nil {
		e.Local = &api.PeerLocal{APIServer: l.APIServer, Named: map[string]string{}}
		for name, address := range l.Named {
			e.Local.Named[name] = string(address)
		}
	}
	if v := s.Services; v != nil {
		e.Services = &api.PeerServices{Export: slices.Clone(v.Export), Import: slices.Clone(v.Import)}
	}
	return e
}

// labels returns the labels that an object's operator has set. Having more than a peer may have
// is no error: only the first by name count.
func labels(o *v1alpha1.Peer) map[string]string {
	out := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(o.Labels)) {
		if len(out) < api.MaxLabels && !strings.HasPrefix(name, v1alpha1.Group+"/") {
			out[name] = o.Labels[name]
		}
	}
	return out
}

// secretsOf fills in the values from Secrets.
func (r *resolver) secretsOf(ctx context.Context, o *v1alpha1.Peer, p *config.Peer) *finding {
	if ref := o.Spec.PresharedKeySecretRef; ref != nil {
		if bad := r.value(ctx, o, ref, func(data []byte) error {
			key, err := peer.ParsePresharedKey(strings.TrimSpace(string(data)))
			p.PresharedKey = key
			return err
		}); bad != nil {
			return bad
		}
	}
	b := o.Spec.OutOfBand
	if b == nil {
		return nil
	}
	if b.CA != "" {
		if err := config.CheckCertificates([]byte(b.CA)); err != nil {
			return found(o, catalogue.PeerRefused, "spec.outOfBand.ca: "+err.Error())
		}
		p.Direct.CA = []byte(b.CA)
	}
	if ref := b.CASecretRef; ref != nil {
		if bad := r.value(ctx, o, ref, func(data []byte) error { p.Direct.CA = data; return config.CheckCertificates(data) }); bad != nil {
			return bad
		}
	}
	if ref := b.TokenSecretRef; ref != nil {
		return r.value(ctx, o, ref, func(data []byte) error {
			p.Direct.Token = check.Token(strings.TrimSpace(string(data)))
			if p.Direct.Token == "" {
				return errors.New("it is empty")
			}
			return nil
		})
	}
	return nil
}

// value passes a value of a Secret to use. Errors of use must not contain the value.
func (r *resolver) value(ctx context.Context, o *v1alpha1.Peer, ref *v1alpha1.SecretKey, use func([]byte) error) *finding {
	data, err := r.secrets.get(ctx, *ref)
	if err == nil {
		err = use(data)
	}
	if err == nil {
		return nil
	}
	r.secrets.doubt(ref.Name)
	f := found(o, catalogue.SecretUnusable, err.Error())
	f.params.File, f.params.Field = ref.Name, ref.Key
	return f
}
