package lab

import (
	"context"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/testenv/simnet"
)

// Fixes that take no judgement are applied as printed: a rule is inserted before those that drop,
// a link is switched on, a route is added. Others are applied if the fix names them
// (endFault.fix).

// repair is the result of applying fixes.
type repair int

const (
	notMechanical repair = iota // no fix can be applied without judgement
	useless                     // a fix was applied and did not help
	helpful
)

// rules are what the firewall at the place of a fault accepts before it drops anything.
type rules struct {
	mu     sync.Mutex
	accept []rule
}

// rule is an nftables rule for UDP; zero fields match anything.
type rule struct {
	from, to netip.Addr
	port     uint16
}

var (
	ruleForm = regexp.MustCompile(`nft insert rule inet filter (?:input|output|forward) (?:ip6? saddr (\S+) )?(?:ip6? daddr (\S+) )?(?:udp dport (\d+)|meta l4proto udp) accept`)
	linkForm = regexp.MustCompile(`ip link set dev \S+ up`)
	wayForm  = regexp.MustCompile(`ip route add default via ROUTER dev DEVICE`)
)

// accepts reports whether a rule accepts a datagram.
func (r *rules) accepts(from, to netip.AddrPort) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.accept {
		if (!a.from.IsValid() || a.from == from.Addr()) && (!a.to.IsValid() || a.to == to.Addr()) && (a.port == 0 || a.port == to.Port()) {
			return true
		}
	}
	return false
}

// insert inserts the rules that a fix prints, and returns their number.
func (r *rules) insert(fix string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range ruleForm.FindAllStringSubmatch(fix, -1) {
		var a rule
		a.from, _ = netip.ParseAddr(m[1]) // invalid: any
		a.to, _ = netip.ParseAddr(m[2])
		port, _ := strconv.ParseUint(m[3], 10, 16)
		a.port = uint16(port)
		r.accept = append(r.accept, a)
		n++
	}
	return n
}

// applyFixes applies the fixes of both sides.
func (g generatedFault) applyFixes(ctx context.Context, l *Lab, found []diagnosis) (repair, error) {
	done := false
	for i, d := range found {
		for _, c := range d.roots() {
			switch {
			case slices.ContainsFunc(c.Steps, checksThere) && len(found) > 1 && tellsMore(found[1-i].codes()):
				// the fix that the other side prints is applied
			case g.end != nil:
				if g.end.fix == nil || !strings.Contains(c.Fix, g.end.says) {
					continue
				}
				if err := g.end.fix(ctx, l); err != nil {
					return notMechanical, err
				}
				done = true
			case g.kind == cut && g.spot != edgeRouter && linkForm.MatchString(c.Fix):
				d.site.Host.Link().SetDown(false)
				done = true
			case g.kind == noRoute && wayForm.MatchString(c.Fix):
				d.site.Refuse(nil)
				done = true
			case g.kind != cut && g.kind != noRoute && !g.passes():
				done = g.rules.insert(c.Fix) > 0 || done
			}
		}
	}
	if !done {
		return notMechanical, nil
	}
	ctx, cancel := context.WithTimeout(ctx, fixTime)
	defer cancel()
	stays := codes(catalogue.StateDeleted, catalogue.ProcessStarved)
	if g.also != nil { // whose fix is not applied
		stays = slices.Concat(stays, g.also.cloud, g.also.edge)
	}
	_, err := l.awaitClean(ctx, l.diagnose, stays...)
	if ctx.Err() != nil {
		return useless, nil
	}
	if err != nil {
		return notMechanical, err
	}
	return helpful, nil
}

// checksThere reports whether a step is to have the other side checked.
func checksThere(s api.Step) bool { return s.Command == "postern check" && !s.Here }

// tellsMore reports whether the other side found a cause other than silence.
func tellsMore(c []catalogue.Code) bool {
	silence := codes(catalogue.PeerSilent, catalogue.HandshakeStale, catalogue.NotHeardByPeer)
	return slices.ContainsFunc(c, func(c catalogue.Code) bool { return !slices.Contains(silence, c) })
}

// fixTime is how long a pair may take to recover. A relay is retried after 30 s.
const fixTime = 75 * time.Second

// filter drops what hit matches unless a rule accepts it.
func (r *rules) filter(hit func(simnet.Datagram, bool) bool) func(simnet.Datagram, bool) bool {
	return func(d simnet.Datagram, out bool) bool { return hit(d, out) && !r.accepts(d.Src, d.Dst) }
}
