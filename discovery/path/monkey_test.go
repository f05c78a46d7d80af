package path_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/discovery/stunwire"
	"github.com/postern-dev/postern/tunnel/peer"
)

// monkey feeds a machine arbitrary inputs in any order, and checks invariants.
type monkey struct {
	t      testing.TB
	r      *rand.Rand
	m      *path.Machine
	now    time.Time
	tx     uint64
	open   []outstanding
	proven map[peer.Path]bool
	sent   []time.Time // the probes of the last second
	paths  []peer.Path
}

type outstanding struct {
	tx   stunwire.TxID
	path peer.Path
}

func newMonkey(t testing.TB, seed uint64) *monkey {
	r := rand.New(rand.NewPCG(seed, 1))
	k := &monkey{
		t: t, r: r, now: time.Unix(1_700_000_000, 0), proven: make(map[peer.Path]bool),
		m: path.New(path.Options{Low: seed%2 == 0, Rand: r}),
	}
	for i := range 12 {
		p := peer.Path{Remote: netip.AddrPortFrom(netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}), port)}
		if i%3 == 0 {
			p.Via = fmt.Sprintf("relay-%d", i%2)
		}
		k.paths = append(k.paths, p)
	}
	return k
}

func (k *monkey) path() peer.Path { return k.paths[k.r.IntN(len(k.paths))] }

func (k *monkey) candidates() []path.Candidate {
	sources := []string{path.SourceHost, path.SourceSTUN, path.SourceAdvertised, path.SourceRelay, "", "odd"}
	var out []path.Candidate
	for range k.r.IntN(8) {
		out = append(out, path.Candidate{Addr: k.path().Remote, Source: sources[k.r.IntN(len(sources))]})
	}
	return out
}

func (k *monkey) nat() path.NAT {
	words := []string{"", "none", "endpoint-independent", "address-dependent", "endpoint-dependent", "address-and-port-dependent", "odd"}
	strays := []string{"", path.StraysDropped, path.StraysAnswered}
	return path.NAT{Mapping: words[k.r.IntN(len(words))], Filtering: words[k.r.IntN(len(words))], Strays: strays[k.r.IntN(len(strays))]}
}

// act performs the input number n.
func (k *monkey) act(n int) {
	m, now := k.m, k.now
	switch n % 16 {
	case 0:
		m.SetRemote(now, k.candidates(), k.r.IntN(2) == 0)
	case 1:
		l := path.Local{NAT: k.nat(), Candidates: k.candidates()}
		for i := range k.r.IntN(3) {
			l.Relays = append(l.Relays, path.Relay{Via: fmt.Sprintf("relay-%d", i), Addr: k.path().Remote})
		}
		m.SetLocal(now, l)
	case 2:
		m.Requested(now, k.path(), k.r.IntN(20) == 0)
	case 3:
		p := k.path()
		k.proven[p] = true
		m.HandshakeDone(now, p)
	case 4:
		m.Silent(now)
	case 5:
		m.Traffic(now)
	case 6:
		if k.r.IntN(5) == 0 {
			m.NetworkChanged(now)
		}
	case 7:
		msg := path.Message{Version: "1.3", Boot: uint64(k.r.IntN(2)), Seq: k.r.Uint64N(1000), Candidates: k.candidates(), NAT: k.nat()}
		steps := []path.Step{path.StepPropose, path.StepOpened, path.StepGo, path.StepWait, "odd"}
		if k.r.IntN(2) == 0 {
			msg.Punch = &path.Punch{
				Session: uint32(k.r.IntN(3)), Step: steps[k.r.IntN(len(steps))], Attempt: k.r.IntN(9) - 3,
				Opened: k.r.IntN(2) == 0, WaitMillis: k.r.Int64() - k.r.Int64(), From: []netip.AddrPort{k.path().Remote},
			}
		}
		m.Receive(now, msg)
	case 8:
		m.Answered(now, stunwire.TxID{1}, k.path(), netip.AddrPort{}) // not requested
	default:
		if len(k.open) > 0 {
			i := k.r.IntN(len(k.open))
			o := k.open[i]
			k.open = slices.Delete(k.open, i, i+1)
			from := o.path
			if k.r.IntN(10) == 0 {
				from = k.path() // another path than the probe's
			}
			k.proven[o.path] = k.proven[o.path] || from == o.path
			m.Answered(now, o.tx, from, o.path.Remote)
		}
	}
}

// poll checks the actions.
func (k *monkey) poll() time.Time {
	frozen := make(map[peer.Path]bool)
	a, next := k.m.Poll(k.now)
	if !next.After(k.now) {
		k.t.Fatalf("the next deadline %v is not after %v", next, k.now)
	}
	s := k.m.Snapshot()
	for _, c := range s.Candidates {
		frozen[c.Path] = c.State == path.Frozen
		if c.Reason == "" {
			k.t.Fatalf("%v is %v without a reason", c.Path, c.State)
		}
	}
	searched := 0
	for _, p := range a.Probes {
		if p.ID == 0 { // of a search among a relay's ports
			if searched++; p.Path.Via == "" || searched > 80 {
				k.t.Fatalf("probe %d of a search goes to %v", searched, p.Path)
			}
			continue
		}
		if frozen[p.Path] && p.TTL == 0 {
			k.t.Fatalf("full-TTL probe to the frozen %v", p.Path)
		}
		k.sent = append(k.sent, k.now)
		k.tx++
		if k.r.IntN(20) == 0 {
			k.m.Sent(k.now, p.ID, stunwire.TxID{}, errors.New("network is unreachable"))
			continue
		}
		k.m.Sent(k.now, p.ID, txID(k.tx), nil)
		k.open = append(k.open, outstanding{txID(k.tx), p.Path})
	}
	k.sent = slices.DeleteFunc(k.sent, func(at time.Time) bool { return k.now.Sub(at) >= time.Second })
	if len(k.sent) > 20 {
		k.t.Fatalf("%d probes in a second", len(k.sent))
	}
	if r := a.Routing; r != nil {
		if r.Selected.IsValid() && !k.proven[r.Selected] {
			k.t.Fatalf("%v is selected and was never proven", r.Selected)
		}
		if len(r.Initiate) > peer.MaxPaths {
			k.t.Fatalf("initiations go to %d paths", len(r.Initiate))
		}
		for _, p := range r.Initiate {
			if frozen[p] {
				k.t.Fatalf("initiations go to the frozen %v", p)
			}
		}
	}
	selected := 0
	for _, c := range s.Candidates {
		if c.State == path.Selected {
			selected++
		}
	}
	if selected > 1 || selected == 1 && !s.Selected.IsValid() || len(s.History) > 32 || len(s.Candidates) > 200 {
		k.t.Fatalf("%d selected, %v in use, %d notes, %d pairs", selected, s.Selected, len(s.History), len(s.Candidates))
	}
	return next
}

// live advances the time: to just before the next deadline, to it, or far beyond.
func (k *monkey) live(next time.Time) {
	switch k.r.IntN(50) {
	case 0:
		k.now = k.now.Add(time.Duration(k.r.IntN(600)) * time.Second)
	case 1:
		k.now = k.now.Add(-time.Second) // a clock may be set back
	default:
		d := next.Sub(k.now)
		k.now = k.now.Add(time.Duration(k.r.Int64N(int64(d) + 1)))
	}
}

func TestAMonkey(t *testing.T) {
	runs := uint64(100)
	if raceDetector {
		runs = 4
	}
	for seed := range runs {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			k := newMonkey(t, seed)
			next := k.now.Add(time.Second)
			for range 2000 {
				k.live(next)
				k.act(k.r.IntN(16))
				next = k.poll()
			}
		})
	}
}

func FuzzMachine(f *testing.F) {
	f.Add(uint64(1), []byte{0, 1, 2, 3, 9, 9, 4, 5, 6, 7, 8, 15})
	f.Add(uint64(2), []byte{1, 0, 9, 3, 4, 4, 9, 7, 7, 9})
	f.Fuzz(func(t *testing.T, seed uint64, acts []byte) {
		k := newMonkey(t, seed)
		next := k.now.Add(time.Second)
		for _, a := range acts {
			k.live(next)
			k.act(int(a))
			next = k.poll()
		}
	})
}
