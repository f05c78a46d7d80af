package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/config"
	"github.com/postern-dev/postern/tui"
	"github.com/postern-dev/postern/tunnel/peer"
)

func (a *app) peerCommand() *cobra.Command {
	return group("peer", "List and change peers", a.peerList(), a.peerShow(), a.peerAdd(), a.peerAllow(), a.peerLocal(), a.peerConfirm(), a.peerApprove(), a.peerToken(), a.peerRemove())
}

func (a *app) peerList() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use:     "list",
		Short:   "List the peers and the local services each may reach",
		Example: "  postern peer list\n  postern peer list -o json | jq -r '.[].name'",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := a.client().Status(c.Context())
			if err != nil {
				return err
			}
			sortPeers(&s)
			if format != formatTable {
				return a.print(format, "", s.Peers)
			}
			w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "PEER\tSTATE\tPUBLIC KEY\tALLOWED HERE\tOFFERS")
			for _, p := range s.Peers {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", tui.Printable(p.Name), p.Shown(), p.PublicKey, orNothing(p.Allow), orNothing(p.Offers))
			}
			return w.Flush()
		},
	}
	outputFlag(c, &format, formatTable, formatJSON, formatYAML)
	return c
}

func (a *app) peerShow() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use:               "show NAME",
		Short:             "Show everything known about one peer",
		Example:           "  postern peer show cloud",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completePeer,
		RunE: func(c *cobra.Command, args []string) error {
			s, err := a.client().Status(c.Context())
			if err != nil {
				return err
			}
			p, err := findPeer(s, args[0])
			if err != nil {
				return err
			}
			if format != formatTable {
				return a.print(format, "PeerStatus", p)
			}
			_, err = fmt.Fprint(a.stdout, tui.Peer(p, a.width(), a.tableOptions(false)))
			return err
		},
	}
	outputFlag(c, &format, formatTable, formatJSON, formatYAML)
	return c
}

func findPeer(s api.Status, name string) (api.PeerStatus, error) {
	names := make([]string, 0, len(s.Peers))
	for _, p := range s.Peers {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	return api.PeerStatus{}, admin.NoPeer(name, names)
}

// peerAddFlags are the fields of a peer that `peer add` can set.
type peerAddFlags struct {
	publicKey, presharedKeyFile         string
	endpoints, allow, local, allowedIPs []string
	stock                               bool
}

func (a *app) peerAdd() *cobra.Command {
	var q peerAddFlags
	c := &cobra.Command{
		Use:   "add NAME --public-key KEY",
		Short: "Add a peer whose key is known, or replace it",
		Example: "  postern peer add cloud --endpoint 203.0.113.10:51820 --allow auth,apiServer \\\n" +
			"      --public-key 3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			r, err := a.peerAddRequest(args[0], q)
			if err != nil {
				return err
			}
			if err := a.client().PeerAdd(c.Context(), r); err != nil {
				return err
			}
			fmt.Fprintf(a.stdout, "added %s\n", args[0])
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&q.publicKey, "public-key", "", "the peer's public `key`")
	f.StringVar(&q.presharedKeyFile, "preshared-key-file", "", "`file` with a preshared key; - reads stdin")
	f.StringSliceVar(&q.endpoints, "endpoint", nil, "`HOST:PORT` to dial; if there is none, the peer must dial")
	f.StringSliceVar(&q.allow, "allow", nil, "local `services` that the peer may reach (default none)")
	f.StringSliceVar(&q.local, "local", nil, "listen here for a service of the peer, as `SERVICE=IP:PORT`")
	f.BoolVar(&q.stock, "stock", false, "add a plain WireGuard peer")
	f.StringSliceVar(&q.allowedIPs, "allowed-ips", nil, "address `prefixes` of a stock peer")
	complete(c, "allow", a.servicesHere)
	return c
}

func (a *app) peerAddRequest(name string, q peerAddFlags) (api.PeerAddRequest, error) {
	r := api.PeerAddRequest{Peer: api.Peer{
		Name: name, PublicKey: q.publicKey, Endpoints: q.endpoints, Allow: q.allow, Stock: q.stock, AllowedIPs: q.allowedIPs,
	}}
	if err := api.CheckName(name); err != nil {
		return r, usagef("", "peer add: %w", err)
	}
	if q.publicKey == "" {
		return r, usagef("postern status -o wide shows it at the other gateway", "peer add: --public-key is missing")
	}
	if _, err := peer.ParsePublicKey(q.publicKey); err != nil {
		return r, usagef("", "--public-key: %w", err)
	}
	for _, e := range q.endpoints {
		if err := config.CheckEndpoint(e); err != nil {
			return r, usagef("", "--endpoint: %w", err)
		}
	}
	local, err := parseLocal(q.local, false)
	if err != nil {
		return r, err
	}
	if len(local) > 0 {
		r.Peer.Local = &api.PeerLocal{APIServer: local[api.ServiceAPIServer]}
		delete(local, api.ServiceAPIServer)
		if len(local) > 0 {
			r.Peer.Local.Named = local
		}
	}
	if q.presharedKeyFile == "" {
		return r, nil
	}
	if r.PresharedKey, err = a.readSecretFile(q.presharedKeyFile, "preshared key"); err != nil {
		return r, err
	}
	if _, err := peer.ParsePresharedKey(r.PresharedKey); err != nil {
		return r, usagef("make one for both sides: postern key gen", "--preshared-key-file: %s holds no preshared key", q.presharedKeyFile)
	}
	return r, nil
}

func (a *app) peerAllow() *cobra.Command {
	var within time.Duration
	c := &cobra.Command{
		Use:               "allow NAME SERVICES",
		Short:             `Set which local services a peer may reach ("" for none)`,
		Example:           "  postern peer allow cloud auth,apiServer\n  postern peer allow cloud auth --confirm-within 2m && postern peer confirm cloud",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.completeAllow,
		RunE: func(c *cobra.Command, args []string) error {
			allow := []string{}
			for s := range strings.SplitSeq(args[1], ",") {
				if s = strings.TrimSpace(s); s != "" {
					allow = append(allow, s)
				}
			}
			r := api.PeerAllowRequest{Allow: allow}
			undone, err := a.change(c.Context(), args[0], api.PeerTryRequest{Within: api.Duration(within), Allow: &r})
			if err != nil {
				return err
			}
			fmt.Fprintf(a.stdout, "%s may reach here: %s\n%s", args[0], orNothing(allow), undone)
			return nil
		},
	}
	confirmFlag(c, &within)
	return c
}

// confirmFlag adds the flag of changes with which operators who work through the tunnel may cut
// themselves off.
func confirmFlag(c *cobra.Command, within *time.Duration) {
	c.Flags().DurationVar(within, "confirm-within", 0, "undo the change after this `time`, such as 2m, unless postern peer confirm is run first")
}

// change changes a peer. If the change is undone unless confirmed, it returns a line that says
// so.
func (a *app) change(ctx context.Context, name string, r api.PeerTryRequest) (undone string, err error) {
	switch {
	case r.Within != 0:
		t, err := a.client().PeerTry(ctx, name, r)
		return fmt.Sprintf("undone at %s unless you keep it: postern peer confirm %s\n", t.UndoneAt.Local().Format(time.TimeOnly), name), err
	case r.Allow != nil:
		return "", a.client().PeerAllow(ctx, name, *r.Allow)
	}
	return "", a.client().PeerLocal(ctx, name, *r.Local)
}

func (a *app) peerConfirm() *cobra.Command {
	return &cobra.Command{
		Use:   "confirm NAME",
		Short: "Keep the changes made with --confirm-within",
		Long: "Keep the changes to a peer that were made with --confirm-within. Otherwise they are undone when their " +
			"time is up, even if the gateway restarts in the meantime.",
		Example:           "  postern peer allow cloud auth --confirm-within 2m\n  postern peer confirm cloud",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completePeer,
		RunE: func(c *cobra.Command, args []string) error {
			if err := a.client().PeerConfirm(c.Context(), args[0]); err != nil {
				return err
			}
			fmt.Fprintf(a.stdout, "the changes of %s stay\n", args[0])
			return nil
		},
	}
}

func (a *app) peerLocal() *cobra.Command {
	var within time.Duration
	c := &cobra.Command{
		Use:   "local NAME SERVICE=ADDR…",
		Short: "Listen here for services of a peer (SERVICE= removes a listener)",
		Long: "Listen on this machine for services of a peer, and carry connections to them. ADDR is IP:PORT, or " +
			"IP:FIRST-LAST for a service with several ports; append /UDP for UDP. Port 0 chooses a free port. " +
			"SERVICE= without an address removes the listener.",
		Example:           "  postern peer local cloud apiServer=127.0.0.1:7443 dns=127.0.0.1:5353/UDP registry=",
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: a.completePeer,
		RunE: func(c *cobra.Command, args []string) error {
			local, err := parseLocal(args[1:], true)
			if err != nil {
				return err
			}
			undone, err := a.change(c.Context(), args[0], api.PeerTryRequest{Within: api.Duration(within), Local: &api.PeerLocalRequest{Local: local}})
			if err != nil {
				return err
			}
			fmt.Fprint(a.stdout, undone)
			s, err := a.client().Status(c.Context())
			if err != nil {
				return err
			}
			i := slices.IndexFunc(s.Peers, func(p api.PeerStatus) bool { return p.Name == args[0] })
			if i < 0 {
				return failedf("see postern peer list", "peer local: %s has been removed meanwhile", args[0])
			}
			return a.tellLocal(s.Peers[i], local)
		},
	}
	confirmFlag(c, &within)
	return c
}

// warnUnoffered warns on stderr if a peer that has been heard does not offer a service.
func (a *app) warnUnoffered(p *api.PeerStatus, service string) {
	if heard := p.Version != ""; heard && !slices.Contains(p.Offers, service) {
		fmt.Fprintf(a.stderr, "warning: %s does not offer %s here; it offers: %s\n", tui.Printable(p.Name), service, orNothing(p.Offers))
	}
}

// tellLocal prints the state of requested listeners.
func (a *app) tellLocal(p api.PeerStatus, asked map[string]string) error {
	var missing error
	for _, service := range slices.Sorted(maps.Keys(asked)) {
		i := slices.IndexFunc(p.Local, func(l api.Local) bool { return l.Service == service })
		switch {
		case asked[service] == "" && i < 0:
			fmt.Fprintf(a.stdout, "no listener for %s of %s\n", service, p.Name)
			continue
		case i < 0:
			missing = failedf("see postern status "+p.Name, "peer local: there is no listener for %s of %s", service, p.Name)
			continue
		}
		l := p.Local[i]
		if l.Error != "" {
			missing = failedf("the gateway keeps trying; choose another address, or remove the listener with "+service+"=",
				"peer local: nothing listens for %s of %s at %s: %s", service, p.Name, l.Address, l.Error)
			continue
		}
		fmt.Fprintf(a.stdout, "%s leads to %s of %s\n", tui.Printable(l.Address), service, p.Name)
		a.warnUnoffered(&p, service)
	}
	return missing
}

// parseLocal parses SERVICE=IP:PORT items.
func parseLocal(items []string, mayRemove bool) (map[string]string, error) {
	if len(items) == 0 {
		return nil, nil
	}
	out := map[string]string{}
	for _, item := range items {
		service, address, ok := strings.Cut(item, "=")
		if !ok || service == "" {
			return nil, usagef("such as apiServer=127.0.0.1:7443", "%q is not SERVICE=IP:PORT", item)
		}
		if _, twice := out[service]; twice {
			return nil, usagef("", "a listener for %s is given twice", service)
		}
		if address == "" && mayRemove {
			out[service] = ""
			continue
		}
		if _, err := api.ParseListen(address); err != nil {
			return nil, usagef("", "listener for %s: %w", service, err)
		}
		out[service] = address
	}
	return out, nil
}

func (a *app) peerRemove() *cobra.Command {
	var force bool
	c := &cobra.Command{
		Use:               "remove NAME",
		Short:             "Remove a peer and end its connections",
		Example:           "  postern peer remove cloud",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completePeer,
		RunE: func(c *cobra.Command, args []string) error {
			listed := a.autoPeered(c.Context(), args[0])
			if err := a.client().PeerRemove(c.Context(), args[0], force); err != nil {
				return err
			}
			fmt.Fprintf(a.stdout, "removed %s\n", args[0])
			if listed != "" {
				fmt.Fprintf(a.stderr, "warning: its key is still in the configuration, %s: remove it from that list\n", listed)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&force, "force", false, "remove the peer even if it has open connections")
	return c
}

// autoPeered returns where in the configuration a peer's key is listed as one that becomes a peer
// automatically; empty if nowhere, or if unknown.
func (a *app) autoPeered(ctx context.Context, name string) string {
	values, err := a.client().Config(ctx)
	if err != nil {
		return ""
	}
	values = slices.DeleteFunc(values, func(v config.Value) bool {
		return v.Value == "" || !strings.HasPrefix(v.Path, "spec.discovery.lan.autoPeer[")
	})
	if len(values) == 0 {
		return ""
	}
	s, err := a.client().Status(ctx)
	if err != nil {
		return ""
	}
	for _, p := range s.Peers {
		for _, v := range values {
			if p.Name == name && (v.Value == p.PublicKey || strings.HasSuffix(v.Value, "="+p.PublicKey)) {
				return tui.Printable(v.Path)
			}
		}
	}
	return ""
}

// completeAllow completes the name of a peer, then the local services.
func (a *app) completeAllow(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 1 {
		return a.servicesHere(c, nil, typed)
	}
	return a.completePeer(c, args, typed)
}

// servicesHere completes a list, separated by commas, of what this gateway offers.
func (a *app) servicesHere(c *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	ctx, cancel := contextWithTimeout(c, completionTimeout)
	defer cancel()
	values, err := a.client().Config(ctx)
	if err != nil {
		return nil, directive
	}
	offered := []string{api.ServiceAuth}
	for _, v := range values {
		switch {
		case v.Path == "spec.services.apiServer.address":
			offered = append(offered, api.ServiceAPIServer)
		case strings.HasPrefix(v.Path, "spec.services.named[") && strings.HasSuffix(v.Path, "].name"):
			offered = append(offered, v.Value)
		}
	}
	before := typed[:strings.LastIndexByte(typed, ',')+1]
	var out []string
	for _, service := range offered {
		if !slices.Contains(strings.Split(before, ","), service) {
			out = append(out, before+service)
		}
	}
	return out, directive
}

// completionTimeout bounds the look at the gateway while a shell waits for completions.
const completionTimeout = time.Second

// completePeer completes the first argument by the names of peers.
func (a *app) completePeer(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := contextWithTimeout(c, completionTimeout)
	defer cancel()
	s, err := a.client().Status(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names := make([]string, 0, len(s.Peers))
	for _, p := range s.Peers {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	return names, cobra.ShellCompDirectiveNoFileComp
}
