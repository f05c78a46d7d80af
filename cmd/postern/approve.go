package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tui"
)

func (a *app) peerApprove() *cobra.Command {
	var r api.DiscoveredApproveRequest
	c := &cobra.Command{
		Use:   "approve NAME",
		Short: "Admit a peer that is waiting for approval, or a gateway that postern discover lists",
		Long: "Admit a peer that joined with a ticket from `postern invite --approve`, or a gateway that `postern " +
			"discover` lists. The command shows the fingerprint of its key and asks you to compare it with what the " +
			"other operator sees: `postern join` printed it there, and `postern discover` shows it. Without a " +
			"terminal, pass the fingerprint with --fingerprint. A discovered gateway must also approve this one.",
		Example: "  postern peer approve edge --fingerprint FINGERPRINT\n" +
			"  postern peer approve cloud --allow auth,apiServer\n" +
			"  postern peer approve 'edge (2)' --as edge-two --fingerprint FINGERPRINT\n" +
			"  postern peer approve FINGERPRINT --as edge-two",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeApprove,
		RunE: func(c *cobra.Command, args []string) error {
			name := args[0]
			if found := len(r.Allow) > 0 || r.As != ""; !found {
				if err := a.approveWaiting(c.Context(), name, r.Fingerprint); !noSuchPeer(err) {
					return err
				}
			}
			return a.approveFound(c.Context(), name, r)
		},
	}
	f := c.Flags()
	f.StringSliceVar(&r.Allow, "allow", nil, "local `services` that the peer may reach (for a discovered gateway; default none)")
	complete(c, "allow", a.servicesHere)
	f.StringVar(&r.As, "as", "", "`name` of the peer here (for a discovered gateway)")
	f.StringVar(&r.Fingerprint, "fingerprint", "", "approve the key with this `fingerprint` (or this key) without asking")
	return c
}

// approveWaiting approves a peer that joined by a ticket, after its key was compared.
func (a *app) approveWaiting(ctx context.Context, name, fingerprint string) error {
	if _, asks := terminal(a.stdin); asks && fingerprint == "" {
		st, err := a.client().Status(ctx)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(st.Peers, func(p api.PeerStatus) bool { return p.Name == name && p.ApprovalFingerprint != "" })
		if i >= 0 { // otherwise the gateway reports what is wrong
			fingerprint = st.Peers[i].ApprovalFingerprint
			if err := a.confirmKey(ctx, name, fmt.Sprintf("%s waits for approval, and its key has the fingerprint %s.\n"+
				"Anyone with the ticket could take this name: `postern join` at the other gateway must have printed the same.\n",
				tui.Printable(name), tui.Printable(fingerprint))); err != nil {
				return err
			}
		}
	}
	if err := a.client().PeerApprove(ctx, name, api.PeerApproveRequest{Fingerprint: fingerprint}); err != nil {
		return err
	}
	fmt.Fprintf(a.stdout, "approved %s, whose key has the fingerprint %s\n", name, fingerprint)
	return nil
}

// approveFound adds a discovered gateway as a peer, after its key was compared.
func (a *app) approveFound(ctx context.Context, name string, r api.DiscoveredApproveRequest) error {
	if r.Fingerprint == "" {
		d, err := a.client().Discovered(ctx)
		if err != nil {
			return err
		}
		found, err := theOneFound(d, name)
		if err != nil {
			return err
		}
		if err := a.confirmFound(ctx, found); err != nil {
			return err
		}
		r.Fingerprint = found.Fingerprint
	}
	p, err := a.client().DiscoveredApprove(ctx, name, r)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.stdout, "approved %s, whose key has the fingerprint %s\n", p.Peer, p.Fingerprint)
	a.userAdvice(p.Peer, p.User)
	fmt.Fprintln(a.stderr, "Approve this gateway there too, unless you have already done so.")
	return nil
}

// called reports whether a name may refer to a discovered gateway: by its own name, or by the
// fingerprint of its key.
func called(g api.Discovered, name string) bool {
	return g.Name.RawUnsafe() == name || g.Name.String() == name || g.Fingerprint != "" && g.Fingerprint == name
}

// theOneFound returns the discovered gateway with a name, a key's fingerprint, or its future name
// here. Gateways that announce no usable key do not count.
func theOneFound(d api.DiscoveredList, name string) (api.Discovered, error) {
	var fit []api.Discovered
	var all, prints []string
	exact := slices.ContainsFunc(d.Gateways, func(g api.Discovered) bool { return called(g, name) })
	for _, g := range d.Gateways {
		all = append(all, g.Name.String())
		if !called(g, name) && (exact || g.As != name) || g.State == api.DiscoveredInvalid || g.Fingerprint == "" || slices.Contains(prints, g.Fingerprint) {
			continue
		}
		fit, prints = append(fit, g), append(prints, g.Fingerprint)
	}
	switch {
	case len(fit) == 1:
		return fit[0], nil
	case len(fit) > 1:
		return api.Discovered{}, failedf("compare them with the other operator, and say which with --fingerprint",
			"approve %q: gateways with different keys use this name: %s", name, tui.Printable(strings.Join(prints, ", ")))
	case exact:
		return api.Discovered{}, failedf("postern discover says what is wrong", "approve %q: what it announces cannot be used", name)
	}
	hint := "found: " + strings.Join(slices.Compact(all), ", ")
	if len(all) == 0 {
		hint = nobodyFound(d)
	}
	return api.Discovered{}, usagef(hint, "approve %q: no peer with this name waits for approval, and no gateway with this name was found", name)
}

// maxAnswer bounds the answer to a question, in bytes.
const maxAnswer = 1 << 10

// confirmFound shows the key of a discovered gateway, and asks whether it is correct.
func (a *app) confirmFound(ctx context.Context, g api.Discovered) error {
	if _, asks := terminal(a.stdin); !asks {
		return usagef("compare what `postern discover` shows here with what it shows for itself there, then add --fingerprint FINGERPRINT",
			"approve %q: there is no terminal to ask whether its key is the right one, and --fingerprint is missing", g.Name)
	}
	return a.confirmKey(ctx, g.Name.String(), fmt.Sprintf("%s (found by %s, at %s) has the fingerprint %s.\n"+
		"Anyone could announce this name: `postern discover` at the other gateway must show the same for itself.\n",
		g.Name, tui.Printable(strings.TrimSpace(g.Source+" "+g.Domain)),
		cmp.Or(tui.Printable(strings.Join(g.Addresses, ", ")), "no address"), tui.Printable(g.Fingerprint)))
}

// confirmKey asks at the terminal whether a key is correct, after showing what is known about it.
func (a *app) confirmKey(ctx context.Context, name, known string) error {
	fmt.Fprint(a.stderr, known+"Is it the same? [y/N] ")
	// A read from a terminal cannot be cancelled: after a signal it ends with the process.
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(io.LimitReader(a.stdin, maxAnswer)).ReadString('\n') // an error is not a yes
		answer <- line
	}()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case line := <-answer:
		if yes := strings.ToLower(strings.TrimSpace(line)); yes == "y" || yes == "yes" {
			return nil
		}
	}
	return failedf("", "approve %q: its key was not confirmed, and nothing was changed", name)
}

// completeApprove completes the names of peers, which may be pending, and of discovered gateways
// that are not peers. For one whose name is not valid for a peer it offers the fingerprint.
func (a *app) completeApprove(c *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
	names, directive := a.completePeer(c, args, text)
	if len(args) > 0 {
		return names, directive
	}
	ctx, cancel := contextWithTimeout(c, completionTimeout)
	defer cancel()
	d, err := a.client().Discovered(ctx)
	if err != nil {
		return names, directive
	}
	for _, g := range d.Gateways {
		word := g.Name.RawUnsafe()
		if api.CheckName(word) != nil {
			word = g.Fingerprint
		}
		if g.State == api.DiscoveredNew && !slices.Contains(names, word) {
			names = append(names, word)
		}
	}
	return names, directive
}

// noSuchPeer reports whether a request failed because no peer has the name.
func noSuchPeer(err error) bool {
	var e *admin.Error
	return errors.As(err, &e) && e.Status == http.StatusNotFound
}
