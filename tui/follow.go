package tui

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/way"
	"github.com/postern-dev/postern/tui/cell"
)

const (
	// maxFollowWait is the longest wait before a gateway that does not answer is tried again.
	maxFollowWait = 15 * time.Second
	// maxSentences bounds the sentences written at once. Nobody reads one for each of a thousand
	// peers.
	maxSentences = 40
	// followLimit is how long an answer may take before the gateway counts as lost.
	followLimit = 5 * time.Second
)

// Follow writes the state of a gateway and its peers as sentences, one per line, and then the
// changes, until ctx ends. It is for screen readers, pipes and logs, and contains only words. If
// the gateway does not answer, it says so and since when, and continues when it answers again. The
// error is that of the first fetch or of a line that could not be written.
func Follow(ctx context.Context, out io.Writer, fetch func(ctx context.Context) (api.Status, error)) error {
	s, err := fetch(ctx)
	if err != nil {
		return err
	}
	now := storyOf(&s)
	if err := say(out, now.opening()); err != nil {
		return err
	}
	var lost time.Time // since when it does not answer
	for wait := interval; ; {
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
		asked := time.Now()
		asking, cancel := context.WithTimeout(ctx, followLimit)
		s, err := fetch(asking)
		cancel()
		var sentences []string
		switch {
		case ctx.Err() != nil: // The next iteration ends.
		case err != nil:
			if wait = min(2*wait, maxFollowWait); lost.IsZero() {
				lost = asked
				sentences = []string{fmt.Sprintf("%s does not answer: %v. It is asked again until it does", now.gateway, err)}
			}
		default:
			next := storyOf(&s)
			if wait = interval; !lost.IsZero() {
				sentences = []string{fmt.Sprintf("%s answers again, after %s", now.gateway, cell.Age(time.Since(lost)))}
				lost = time.Time{}
			}
			sentences = append(sentences, next.since(now)...)
			now = next
		}
		if err := say(out, sentences); err != nil {
			return err
		}
	}
}

// words replaces the symbols of the screen with words.
var words = strings.NewReplacer(" → ", " to ", " ← ", " from ", "→ ", "to ", "← ", "from ", " · ", ", ", "…", "...")

// say writes sentences with the time, one per line.
func say(out io.Writer, sentences []string) error {
	if n := len(sentences) - maxSentences; n > 0 {
		sentences = append(sentences[:maxSentences:maxSentences], fmt.Sprintf("And %d more; postern status has all", n))
	}
	var text strings.Builder
	for _, s := range sentences {
		fmt.Fprintf(&text, "%s %s.\n", time.Now().Format(time.TimeOnly), strings.TrimSuffix(Printable(words.Replace(s)), "."))
	}
	if _, err := io.WriteString(out, text.String()); err != nil {
		return fmt.Errorf("write what changed: %w", err)
	}
	return nil
}

// story is the state of a gateway at one moment as sentences.
type story struct {
	gateway, summary string
	started          time.Time
	peers            []peerStory
	// wrong are the problems of the gateway itself.
	wrong []problem
}

type peerStory struct {
	name, state, path string
	well              bool
	wrong             []problem
}

// problem is a cause with its code and fix. Its key identifies it, because figures in a cause
// change. Its end is written if it has a name; problems without a code are covered by the peer's
// state.
type problem struct{ key, name, text string }

func storyOf(s *api.Status) story {
	g := &s.Gateway
	st := story{gateway: "gateway " + g.Name, started: g.StartedAt}
	count := map[cell.Standing]int{}
	peers := slices.Clone(s.Peers)
	slices.SortStableFunc(peers, func(a, b api.PeerStatus) int { return cell.CompareNames(a.Name, b.Name) })
	for i := range peers {
		p := &peers[i]
		standing := cell.StandingOf(p)
		count[standing.Counted()]++
		w := way.Of(s, p, nil, nil)
		told := peerStory{name: p.Name, state: cell.PeerState(p).Word(), path: cell.Path(p.Path.Kind).Text, well: standing.Counted() == cell.Connected}
		if p.Path.Remote != "" {
			told.path += " " + p.Path.Remote
		}
		for _, f := range cell.Wrong(&w, cell.Findings(p)) {
			told.wrong = append(told.wrong, problemOf(f))
		}
		st.peers = append(st.peers, told)
	}
	for _, c := range cell.OtherProblems(s.Problems, s.Peers) {
		if f, found := cell.CheckFinding(c); found {
			st.wrong = append(st.wrong, problemOf(f))
		}
	}
	for i := range s.Alarms {
		if a := &s.Alarms[i]; a.Event == api.EventAlarm {
			st.wrong = append(st.wrong, problem{key: a.Code + a.Subject + a.First.String(), text: "alarm " + Alarm(a)})
		}
	}
	var states []string
	for _, standing := range cell.Standings() {
		if n := count[standing]; n > 0 {
			states = append(states, fmt.Sprintf("%d %s", n, standing.Cell().Word()))
		}
	}
	st.summary = fmt.Sprintf("%s has %d peers", st.gateway, len(peers))
	if len(peers) == 1 {
		st.summary = st.gateway + " has 1 peer"
	}
	if len(states) > 0 {
		st.summary += ": " + strings.Join(states, ", ")
	}
	st.summary = strings.TrimSuffix(st.summary+". "+cell.NATWords(g.NAT), ". ")
	return st
}

func problemOf(f cell.Finding) problem {
	p := problem{key: f.Subject + f.Code, text: f.Text()}
	if f.Code != "" {
		p.name = f.Subject + " " + f.Code
	}
	if len(f.Steps) > 0 {
		p.text += ". Fix: " + cell.Printable(f.Steps.String())
	}
	return p
}

// opening returns the first sentences.
func (s *story) opening() []string {
	out := append([]string{s.summary}, news(nil, s.wrong)...)
	for i := range s.peers {
		if p := &s.peers[i]; !p.well || len(p.wrong) > 0 {
			out = append(append(out, p.name+": "+p.state), news(nil, p.wrong)...)
		}
	}
	return out
}

// since returns what has changed.
func (s *story) since(before story) []string {
	var out []string
	if !s.started.Equal(before.started) {
		out = append(out, s.gateway+" was restarted")
	}
	out = append(out, news(before.wrong, s.wrong)...)
	old := map[string]peerStory{}
	for _, p := range before.peers {
		old[p.name] = p
	}
	for _, p := range s.peers {
		was, known := old[p.name]
		delete(old, p.name)
		switch {
		case !known:
			out = append(out, p.name+": a new peer, "+p.state)
		case was.state != p.state:
			out = append(out, fmt.Sprintf("%s: %s now, and was %s", p.name, p.state, was.state))
		}
		if known && was.path != p.path {
			out = append(out, fmt.Sprintf("the path to %s is %s now, and was %s", p.name, p.path, was.path))
		}
		out = append(out, news(was.wrong, p.wrong)...)
	}
	for _, p := range before.peers {
		if _, gone := old[p.name]; gone {
			out = append(out, p.name+": no peer any more")
		}
	}
	return out
}

// news returns the problems that are new, and those that are over.
func news(before, now []problem) []string {
	var out []string
	has := func(list []problem, key string) bool {
		return slices.ContainsFunc(list, func(p problem) bool { return p.key == key })
	}
	for _, p := range now {
		if !has(before, p.key) {
			out = append(out, p.text)
		}
	}
	for _, p := range before {
		if !has(now, p.key) && p.name != "" {
			out = append(out, "over: "+p.name)
		}
	}
	return out
}
