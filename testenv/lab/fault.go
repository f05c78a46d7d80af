package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
)

// fault is a scenario's fault: how to cause it, the root that each side's checks must find, and
// how to fix it, as the printed fix says.
type fault struct {
	// slip writes a mistake into the files by which the two are peered, and describes it: the two
	// do not work from the start. Without it they are healthy until harm.
	slip func(context.Context, *Lab) (string, error)
	// harm causes the fault while both gateways run; nil if the slip is the fault.
	harm func(context.Context, *Lab) (string, error)
	// ripens is the time after slip or harm until anything is wrong.
	ripens time.Duration
	// cloud and edge are the codes that each side finds, sorted.
	cloud, edge []catalogue.Code
	// turns means that the fault comes and goes by its nature: each side finds its codes in some
	// check, not necessarily in the same one.
	turns bool
	// fix follows the printed fix, and describes what it did.
	fix func(context.Context, *Lab) (string, error)
	// stays are the codes that may still be shown after the fix. stay says for how long and why.
	stays []catalogue.Code
	stay  string
	// byTicket means that the two are peered by a ticket instead of by files.
	byTicket bool
	// ill means that the network never lets the two be healthy.
	ill bool
	// forwarded means that cloud's NAT forwards the gateway's port until harm.
	forwarded bool
	// named is the host name by which edge knows cloud; empty means by address.
	named string
}

// faultState is the state that a fault's functions share.
type faultState struct {
	// double is a copy of edge.
	double *Site
	// servers are the servers that the fault started.
	servers []io.Closer
}

// steps returns the steps of a phase.
func (f *fault) steps(l *Lab, phase Phase) []step {
	switch phase {
	case Prepare:
		if f.slip != nil {
			return nil
		}
		met := step{"healthy", "both check all they can reach", func(ctx context.Context) (string, error) { return l.awaitClean(ctx, l.patient()) }}
		if f.ill {
			met = step{"connected", "both wait for an authenticated answer", l.awaitMet}
		}
		steps := append(f.peer(l), met)
		if f.byTicket { // each learns of the other's NAT from its reports
			steps = append(steps, step{"reports", "each tells the other what it reaches", l.awaitReports})
		}
		return steps
	case Harm:
		made := step{"fault", "", func(ctx context.Context) (string, error) { return f.harm(ctx, l) }}
		if f.slip != nil {
			made.do = func(ctx context.Context) (string, error) {
				text, err := f.slip(ctx, l)
				if err == nil {
					err = l.peer(ctx)
				}
				return text, err
			}
		}
		return []step{made, {"found", "both check until the fault has a name", func(ctx context.Context) (string, error) { return l.awaitFound(ctx, f) }}}
	case Fix:
		return []step{
			{"fix", "", func(ctx context.Context) (string, error) { return f.fix(ctx, l) }},
			{"fixed", "both check until nothing is wrong", func(ctx context.Context) (string, error) {
				text, err := l.awaitClean(ctx, l.diagnose, f.stays...)
				return strings.TrimSuffix(text+"; "+f.stay, "; "), err
			}},
		}
	}
	return nil
}

// peer makes the two known to each other.
func (f *fault) peer(l *Lab) []step {
	if f.byTicket {
		return []step{l.invite(), {"join", "edge redeems the ticket", func(ctx context.Context) (string, error) {
			return "edge redeemed it", l.join(ctx)
		}}}
	}
	return []step{{"peers", "", func(ctx context.Context) (string, error) {
		return "each has the other's public key and endpoint in its file", l.peer(ctx)
	}}}
}

// peer makes both gateways read their files.
func (l *Lab) peer(ctx context.Context) error {
	for _, s := range l.pair() {
		if err := s.reload(ctx); err != nil {
			return err
		}
	}
	return nil
}

// pair returns the two sites in display order.
func (l *Lab) pair() []*Site { return []*Site{l.Cloud, l.Edge} }

// diagnosis is the result of a site's checks.
type diagnosis struct {
	site   *Site
	report api.CheckReport
	err    error
}

// diagnoser returns the results of both sites' checks.
type diagnoser func(context.Context) (cloud, edge diagnosis)

// diagnose runs the checks of both sites concurrently.
func (l *Lab) diagnose(ctx context.Context) (cloud, edge diagnosis) {
	cloud, edge = diagnosis{site: l.Cloud}, diagnosis{site: l.Edge}
	var both sync.WaitGroup
	for _, d := range []*diagnosis{&cloud, &edge} {
		both.Go(func() { d.report, d.err = d.site.Gateway.Check(ctx, api.CheckRequest{}) })
	}
	both.Wait()
	return cloud, edge
}

// known returns the results of the gateways' periodic checks. These measure neither loss nor
// sizes, and are cheap.
func (l *Lab) known(ctx context.Context) (cloud, edge diagnosis) {
	cloud, edge = diagnosis{site: l.Cloud}, diagnosis{site: l.Edge}
	for _, d := range []*diagnosis{&cloud, &edge} {
		d.report, d.err = d.site.Gateway.Checks(ctx)
	}
	return cloud, edge
}

// patient returns a function that calls known for a while, in which the gateways' own checks
// usually finish, and then diagnose.
func (l *Lab) patient() diagnoser {
	const enough = 8 * time.Second
	start := time.Now()
	return func(ctx context.Context) (cloud, edge diagnosis) {
		if time.Since(start) < enough {
			return l.known(ctx)
		}
		return l.diagnose(ctx)
	}
}

// faulty returns the checks that find a fault.
func (d diagnosis) faulty() []api.Check {
	return slices.DeleteFunc(slices.Clone(d.report.Checks), func(c api.Check) bool {
		return c.Verdict.Verdict != api.Error && c.Verdict.Verdict != api.Warning
	})
}

// roots returns the checks that name something to fix now. Faults that are made and repaired, or
// that flap, are rightly said to come and go.
func (d diagnosis) roots() []api.Check {
	return slices.DeleteFunc(d.faulty(), func(c api.Check) bool { return c.Code == string(catalogue.Intermittent) })
}

// codes returns the codes of the roots, sorted.
func (d diagnosis) codes() []catalogue.Code {
	var out []catalogue.Code
	for _, c := range d.roots() {
		out = append(out, catalogue.Code(c.Code))
	}
	slices.Sort(out)
	return out
}

// String returns a line for each root's cause and one for its fix.
func (d diagnosis) String() string {
	var lines []string
	for _, c := range d.roots() {
		where := c.Name
		if c.Direction == api.DirectionOwn {
			where = "of itself, " + where
		}
		lines = append(lines, fmt.Sprintf("%s finds %s (%s): %s", d.site.Name, c.Code, where, c.Cause), "  fix: "+c.Fix)
	}
	if len(lines) == 0 {
		return d.site.Name + " finds nothing wrong"
	}
	return strings.Join(lines, "\n")
}

// awaitFound waits until each side finds its codes and no others. What depends on time, such as
// whether a peer is still heard, may take several checks.
func (l *Lab) awaitFound(ctx context.Context, f *fault) (string, error) {
	var found [2]string // what cloud and edge have found, while it counts
	return awaitDiagnosis(ctx, l.diagnose, func(cloud, edge diagnosis) string {
		for i, fits := range []bool{
			slices.Equal(cloud.codes(), f.cloud),
			slices.Equal(edge.codes(), f.edge),
		} {
			switch d := []diagnosis{cloud, edge}[i]; {
			case fits:
				found[i] = d.String()
			case !f.turns:
				found[i] = ""
			}
		}
		if !slices.Contains(found[:], "") {
			return ""
		}
		return fmt.Sprintf("cloud found %v, to find %v; edge found %v, to find %v\n%s\n%s", cloud.codes(), f.cloud, edge.codes(), f.edge, cloud, edge)
	}, func(_, _ diagnosis) string { return found[0] + "\n" + found[1] })
}

// awaitClean waits until neither side finds anything except stays, and all targets are reached.
func (l *Lab) awaitClean(ctx context.Context, look diagnoser, stays ...catalogue.Code) (string, error) {
	return awaitDiagnosis(ctx, look, func(cloud, edge diagnosis) string {
		for _, d := range []diagnosis{cloud, edge} {
			if slices.ContainsFunc(d.codes(), func(c catalogue.Code) bool { return !slices.Contains(stays, c) }) {
				return d.String()
			}
			if c := d.waits(); c != "" {
				return d.site.Name + ": " + c
			}
		}
		return ""
	}, func(cloud, edge diagnosis) string {
		return fmt.Sprintf("%d checks of cloud and %d of edge are ok", cloud.report.Summary.OK, edge.report.Summary.OK)
	})
}

// awaitReports waits until each has reported to the other what it reaches and how its NAT
// behaves.
func (l *Lab) awaitReports(ctx context.Context) (string, error) {
	return awaitDiagnosis(ctx, l.known, func(cloud, edge diagnosis) string {
		for _, d := range []diagnosis{cloud, edge} {
			if !slices.ContainsFunc(d.report.Checks, func(c api.Check) bool {
				return c.Name == "inbound-"+api.ServiceGateway && c.CheckedAt != nil
			}) {
				return d.site.Name + " has had no report"
			}
		}
		return ""
	}, func(_, _ diagnosis) string {
		return "each knows from the other what it reaches, and what its NAT is like"
	})
}

// waits returns a check of the peer that has no verdict yet.
func (d diagnosis) waits() string {
	for _, c := range d.report.Checks {
		if c.Direction == api.DirectionOutbound && c.Verdict.Verdict == api.Unknown && c.DependsOn == "" {
			return fmt.Sprintf("%s of %s is unknown: %s", c.Name, c.Peer, c.Cause)
		}
	}
	return ""
}

// between is the pause between two checks: a full check sends hundreds of packets.
const between = 500 * time.Millisecond

func rest(ctx context.Context) {
	t := time.NewTimer(between)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// awaitDiagnosis repeats the checks until missing returns "".
func awaitDiagnosis(ctx context.Context, look diagnoser, missing, text func(cloud, edge diagnosis) string) (string, error) {
	var cloud, edge diagnosis
	before := "no report came"
	err := poll(ctx, func() (string, error) {
		cloud, edge = look(ctx)
		select {
		case <-ctx.Done():
			return before, nil // the check was cut short
		default:
		}
		if err := errors.Join(cloud.err, edge.err); err != nil {
			return "", err
		}
		if before = missing(cloud, edge); before != "" {
			rest(ctx)
		}
		return before, nil
	})
	if err != nil {
		return "", err
	}
	return text(cloud, edge), nil
}
