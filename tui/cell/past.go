package cell

import (
	"strings"

	"github.com/postern-dev/postern/control/api"
)

// PastLines are what strips of the past are drawn with: one glyph for a piece of time.
type PastLines struct {
	// Direct and Relay are a peer that is connected, by its path; Well is a verdict of ok.
	Direct, Relay, Well string
	// Bad, Wary, Tried and Waits are other standings, Unknown and Off other verdicts. Nothing stands for a
	// time of which nothing is known.
	Bad, Wary, Tried, Waits, Unknown, Off, Nothing string
}

// What strips are drawn with: Unicode's lines, and ASCII. Nothing of now has these glyphs, so that
// the past is not taken for it. The worse something was, the darker is its glyph.
var (
	BoxPast   = PastLines{"━", "┅", "━", "▓", "▒", "░", "╌", ".", "┈", " "}
	ASCIIPast = PastLines{"=", "~", "=", "@", "%", ":", ";", ",", "_", " "}
)

// glyphStyles are the styles of glyphs in texts of the style Signs.
var glyphStyles = map[rune]Style{
	'✓': Good, '!': Wary, '✗': Bad, '?': Quiet, '-': Quiet,
	'━': Good, '┅': Wary, '▓': Bad, '▒': Wary, '░': Wary, '╌': Wary, '.': Quiet, '┈': Quiet,
	'=': Good, '~': Wary, '@': Bad, '%': Wary, ':': Wary, ';': Wary, ',': Quiet, '_': Quiet,
}

// Legend says what the glyphs of verdicts in a text are, as far as they are there.
func Legend(signs string) []string {
	return present(signs, [][2]string{{"!", "faulty"}, {"✗", "fails"}, {"?", "unknown"}, {"-", "off"}})
}

func present(text string, glyphs [][2]string) []string {
	var items []string
	for _, g := range glyphs {
		if strings.Contains(text, g[0]) {
			items = append(items, g[0]+" "+g[1])
		}
	}
	return items
}

// Legend says what the glyphs in a strip are, as far as they are there.
func (l PastLines) Legend(strip string) []string {
	return present(strip, [][2]string{
		{l.Direct, "worked"}, {l.Relay, "relay"}, {l.Wary, "faulty"}, {l.Bad, "failed"}, {l.Tried, "tried"}, {l.Waits, "waited"}, {l.Unknown, "unknown"}, {l.Off, "off"},
	})
}

// Then is a peer as a point of its history has it, as far as that goes.
func Then(x *api.HistoryPoint) api.PeerStatus {
	p := api.PeerStatus{State: x.State, RxBytesPerSecond: x.RxBytesPerSecond, TxBytesPerSecond: x.TxBytesPerSecond}
	if x.State == api.StateUnconfirmed {
		p.State, p.UnconfirmedSince = api.StateConnected, &x.At
	}
	p.Path.Kind, p.Path.RTTSeconds = x.Path, x.RTTSeconds
	targets := func(o api.Outcomes) api.Targets {
		return api.Targets{Auth: api.Verdict{Verdict: o.Auth}, APIServer: api.Verdict{Verdict: o.APIServer}, Gateway: api.Verdict{Verdict: o.Gateway}}
	}
	p.Reachability = api.Reachability{Outbound: targets(x.Outbound), Inbound: targets(x.Inbound), Beside: x.Outbound.Beside}
	return p
}

// State is the glyph of a peer's standing at a time.
func (l PastLines) State(x *api.HistoryPoint) string {
	then := Then(x)
	switch StandingOf(&then) {
	case Failed, Silent, Broken:
		return l.Bad
	case Faulty:
		return l.Wary
	case Unconfirmed, Connecting:
		return l.Tried
	case Pending:
		return l.Waits
	case Other:
		return l.Nothing
	}
	if x.Path == api.PathRelay {
		return l.Relay
	}
	return l.Direct
}

// Outcome is the glyph of a verdict at a time.
func (l PastLines) Outcome(x *api.HistoryPoint, o api.Outcome) string {
	if x.State == "" {
		return l.Nothing
	}
	switch o {
	case api.OK:
		return l.Well
	case api.Warning:
		return l.Wary
	case api.Error:
		return l.Bad
	case api.Off:
		return l.Off
	}
	return l.Unknown
}
