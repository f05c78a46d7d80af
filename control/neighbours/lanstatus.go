package neighbours

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/discovery/lan"
	"github.com/postern-dev/postern/tunnel/foreign"
	"github.com/postern-dev/postern/tunnel/peer"
)

const (
	// lanSilence is how long silence lasts before it is a problem: if anyone is there, something is
	// repeated every minute or two.
	lanSilence = time.Minute
	// maxLANProblems bounds the verdicts on what others announce.
	maxLANProblems = 8
)

// facts returns the input of the check; nil without a search.
func (s *lanSearch) facts(now time.Time) *check.LANFacts {
	f := s.finder.Load()
	if f == nil {
		return nil
	}
	status, found := f.Status(), f.Found()
	out := &check.LANFacts{Found: len(found), Problems: s.linkProblems(status, len(found), now)}
	if status.Announced {
		out.AnnouncedAs = status.Name
	}
	for _, l := range status.Links {
		if l.IPv4 || l.IPv6 {
			out.Interfaces = append(out.Interfaces, l.Interface)
		}
	}
	out.Problems = append(out.Problems, s.foundProblems(found)...)
	return out
}

// linkProblems returns why nobody may be visible.
func (s *lanSearch) linkProblems(status lan.Status, found int, now time.Time) []check.OwnProblem {
	if status.Since.IsZero() || status.Links == nil && status.Err == "" {
		return nil // it has not looked yet
	}
	var unfit, failed, open []string
	var errs string
	heard := false
	chosen := len(s.o.Peers.Config().Discovery.LAN.Interfaces) > 0
	for _, l := range status.Links {
		if l.Unfit != "" {
			unfit = append(unfit, fmt.Sprintf("%s (%s)", l.Interface, l.Unfit))
		}
		switch {
		case l.IPv4 || l.IPv6: // one family is enough to be found
			open = append(open, l.Interface)
		case l.Err != "":
			failed, errs = append(failed, l.Interface), l.Err
		}
		heard = heard || !l.Heard.IsZero()
	}
	if status.Err != "" {
		failed, errs = nil, status.Err
	}
	var out []check.OwnProblem
	add := func(code catalogue.Code, names []string, more catalogue.Params) {
		more.Names = names
		out = append(out, check.OwnProblem{Code: code, Params: more})
	}
	if errs != "" {
		add(catalogue.LANNotJoined, failed, catalogue.Params{Detail: errs})
	}
	if len(open)+len(failed) == 0 && status.Err == "" || chosen && len(unfit) > 0 {
		add(catalogue.LANNoInterface, unfit, catalogue.Params{})
	}
	if silent := now.Sub(status.Since); len(open) > 0 && !heard && found == 0 && silent >= lanSilence {
		if inPodNetwork(s.o.Root, open) {
			add(catalogue.LANPod, open, catalogue.Params{})
		} else {
			add(catalogue.LANSilent, open, catalogue.Params{Age: silent})
		}
	}
	return out
}

// foundProblems returns those about what others announce.
func (s *lanSearch) foundProblems(found []lan.Instance) []check.OwnProblem {
	var out []check.OwnProblem
	r := s.o.Peers.Load()
	for _, i := range found {
		if len(out) == maxLANProblems {
			break
		}
		var p catalogue.Params
		switch m, otherKey := r.Match(i.Name.RawUnsafe(), i.PublicKey); {
		case !i.Err.IsZero():
			p.Names, p.Detail = []string{i.Name.String()}, i.Err.String()
			out = append(out, check.OwnProblem{Code: catalogue.LANRecord, Params: p})
		case otherKey:
			p.Peer, p.Known, p.Found = m.Name, peer.Fingerprint(m.Key), peer.Fingerprint(i.PublicKey)
			for _, a := range i.Addresses {
				p.Endpoints = append(p.Endpoints, a.String())
			}
			out = append(out, check.OwnProblem{Code: catalogue.LANOtherKey, Params: p})
		}
	}
	return out
}

// inPodNetwork reports whether this process is in a pod: all of these interfaces are ends of
// virtual cables whose other ends are in another namespace.
func inPodNetwork(root fs.FS, interfaces []string) bool {
	if root == nil || os.Getenv("KUBERNETES_SERVICE_HOST") == "" {
		return false
	}
	number := func(name, file string) int {
		text, err := fs.ReadFile(root, "sys/class/net/"+name+"/"+file)
		n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			return 0
		}
		return n
	}
	return !slices.ContainsFunc(interfaces, func(name string) bool {
		index, other := number(name, "ifindex"), number(name, "iflink")
		return index == 0 || index == other
	})
}

// discovered lists the results, one entry per gateway, whatever the interface.
func (s *lanSearch) discovered(r *roster.Roster, now time.Time) []api.Discovered {
	var out []api.Discovered
	at := map[[2]string]int{}
	for _, i := range s.found() {
		id := [2]string{i.Name.RawUnsafe(), i.PublicKey.String() + i.Err.RawUnsafe()}
		n, again := at[id]
		if !again {
			n = len(out)
			at[id] = n
			out = append(out, describe(r, i))
		}
		d := &out[n]
		for _, a := range i.Addresses {
			if text := a.String(); !slices.Contains(d.Addresses, text) {
				d.Addresses = append(d.Addresses, text)
			}
		}
		d.Domain = strings.Join(append(strings.Fields(d.Domain), i.Interface), " ")
		if d.FirstSeenAt.IsZero() || i.FirstSeen.Before(d.FirstSeenAt) {
			d.FirstSeenAt = i.FirstSeen.UTC()
		}
		if i.LastSeen.After(d.SeenAt) {
			d.SeenAt, d.AgeSeconds = i.LastSeen.UTC(), now.Sub(i.LastSeen).Seconds()
		}
		if i.Expires.After(d.ExpiresAt) {
			d.ExpiresAt = i.Expires.UTC()
		}
	}
	return out
}

// describe describes a discovered gateway, and what is wrong with it.
func describe(r *roster.Roster, i lan.Instance) api.Discovered {
	d := api.Discovered{
		Name: i.Name, Source: api.SourceLAN, Addresses: []string{},
		State: api.DiscoveredNew, Member: i.Member, Capabilities: i.Capabilities,
	}
	if !i.PublicKey.IsZero() {
		d.PublicKey, d.Fingerprint = i.PublicKey.String(), peer.Fingerprint(i.PublicKey)
	}
	switch m, otherKey := r.Match(i.Name.RawUnsafe(), i.PublicKey); {
	case !i.Err.IsZero():
		d.State, d.Problem, d.Code = api.DiscoveredInvalid, i.Err, string(catalogue.LANRecord)
	case otherKey:
		d.State, d.Peer, d.Code = api.DiscoveredConflict, m.Name, string(catalogue.LANOtherKey)
		d.Problem = foreign.Of(fmt.Sprintf("peer %s has the key %s here, and that one is kept to", m.Name, peer.Fingerprint(m.Key)))
	case m != nil && m.Pending:
		d.State, d.Peer = api.DiscoveredPending, m.Name
	case m != nil:
		d.State, d.Peer = api.DiscoveredPeer, m.Name
	}
	return d
}

// looking returns the names of the interfaces in use.
func (s *lanSearch) looking(now time.Time) []string {
	if l := s.facts(now); l != nil {
		return l.Interfaces
	}
	return nil
}

// discoveryProblems say why a search finds nobody, and how to fix it.
func (s *lanSearch) discoveryProblems(now time.Time) []api.DiscoveryProblem {
	f := s.finder.Load()
	if f == nil {
		return nil
	}
	status := f.Status()
	var out []api.DiscoveryProblem
	for _, p := range s.linkProblems(status, len(f.Found()), now) {
		p.Params.Inbound = true
		cause, fix := catalogue.Render(p.Code, p.Params)
		out = append(out, api.DiscoveryProblem{Where: api.SourceLAN, Problem: foreign.Of(cause), Steps: fix, Fix: fix.String(), Code: string(p.Code)})
	}
	return out
}

// announcedAs is this gateway's name on the local network; empty while it has none.
func (s *lanSearch) announcedAs() string {
	if f := s.finder.Load(); f != nil {
		if status := f.Status(); status.Announced {
			return status.Name
		}
	}
	return ""
}
