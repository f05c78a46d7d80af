package screen

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/x/ansi"

	"github.com/postern-dev/postern/control/api"
)

// many is a gateway with n peers, some of them in trouble.
func many(n int) *fake {
	f := &fake{status: api.Status{Gateway: busyStatus().Gateway}, report: api.CheckReport{Gateway: "edge", At: noon}}
	states := []api.PeerState{api.StateConnected, api.StateConnecting, api.StatePending, api.StateFailed, "odd"}
	outcomes := []api.Outcome{api.OK, api.Warning, api.Error, api.Unknown, api.Off, "odd"}
	for i := range n {
		v := api.Verdict{Verdict: outcomes[i%len(outcomes)], RTTSeconds: float64(i) / 1000, CheckedAt: ago(time.Second)}
		if v.Verdict == api.Error || v.Verdict == api.Warning {
			v.Code, v.Stage, v.Cause, v.Fix = "PST0101", "handshake", "198.51.100.7:51820 does not answer handshakes (sent 4 in 20 s)", "open UDP port 51820 towards 198.51.100.7"
		}
		p := cloud(v, v, v)
		p.Name, p.PublicKey, p.State = fmt.Sprintf("peer-%d", i), fmt.Sprintf("key-%d", i), states[i%len(states)]
		f.status.Peers = append(f.status.Peers, p)
		for _, name := range []string{"gateway", "auth", "apiServer", "inbound-auth", "inbound-apiServer", "inbound-gateway"} {
			f.report.Checks = append(f.report.Checks, api.Check{Name: name, Peer: p.Name, Direction: api.DirectionOutbound, Verdict: v,
				Stages: []api.CheckStage{{Stage: "probe", Verdict: v.Verdict, Seconds: 0.01}}})
		}
	}
	return f
}

// gateways are typical gateways for a screen.
func gateways() map[string]func() *fake {
	return map[string]func() *fake{
		"busy": busy,
		"many": func() *fake { return many(20) },
		"none": func() *fake { return &fake{} },
		"lost": func() *fake {
			return &fake{err: errors.New("no gateway answers on /run/postern/postern.sock\x1b[2J: connection refused")}
		},
		"bare": func() *fake {
			return &fake{status: api.Status{Peers: make([]api.PeerStatus, 3)}, report: api.CheckReport{Checks: make([]api.Check, 3)}, log: api.Log{Records: make([]api.LogRecord, 2)}}
		},
		"wide characters": func() *fake {
			f := busy()
			f.status.Gateway.Name = "門門門門門門門門門門門門門門門門門門門門門門門門門門門門門門門門"
			f.status.Peers[0].Name = "名前名前名前名前名前名前名前名前"
			f.report.Checks[3].Cause = "原因原因原因原因原因原因原因原因原因原因原因原因原因原因原因原因原因原因原因原因"
			return f
		},
	}
}

// walk returns a sequence of keys that leads through everything.
func walk(r *rand.Rand) []string {
	all := []string{"1", "2", "3", "4", "5", "6", "7", "8", "tab", "shift+tab", "j", "k", "g", "G", "pgdown", "pgup", "enter", "esc", "?", "s", "w", "p", "r", "c",
		"b", " ", "+", "-", "left", "right", ":", "/", "f", "z", "l", "L", "x", "é", "門", "up", "down"}
	var keys []string
	for range 12 {
		keys = append(keys, all[r.IntN(len(all))])
	}
	return keys
}

func TestEveryPictureFillsTheScreenExactly(t *testing.T) {
	for name, gateway := range gateways() {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(walks) {
				r := rand.New(rand.NewPCG(seed, 5))
				width, height := 20+r.IntN(201), 6+r.IntN(65)
				keys := walk(r)
				plain, coloured := play(t, gateway(), width, height, false), play(t, gateway(), width, height, true)
				for i, k := range keys {
					// The terminal changes its size in the meantime.
					if i == len(keys)/2 {
						width, height = 20+r.IntN(201), 6+r.IntN(65)
						for _, s := range []*stage{plain, coloured} {
							s.Update(tea.WindowSizeMsg{Width: width, Height: height})
						}
					}
					a, b := plain.press(k).View(), coloured.press(k).View()
					fits(t, a, width, height)
					fits(t, b, width, height)
					if ansi.Strip(b) != a {
						t.Errorf("colour changes what is said:\n%s\n%s", ansi.Strip(b), a)
					}
					if t.Failed() {
						t.Fatalf("seed %d: after %q on %d × %d", seed, keys[:i+1], width, height)
					}
				}
			}
		})
	}
}

func TestNoSizeIsTooSmall(t *testing.T) {
	for _, width := range []int{0, 1, 2, 7, 11, 19} {
		for height := range 8 {
			s := play(t, busy(), width, height, true)
			for _, k := range []string{"1", "2", "3", "4", "5", "6", "7", "8", "?", "/", "esc", ":"} {
				if picture := s.press(k).View(); width > 0 && height > 0 {
					fits(t, picture, width, height)
				}
			}
		}
	}
}
