package screen

import (
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/postern-dev/postern/tui/theme"
)

// wild generates responses of a gateway: what the types permit, and now and then what they should
// not.
type wild struct{ *rand.Rand }

// words are parts of texts: meaningful ones and malicious ones.
var words = []string{
	"connected", "connecting", "pending", "failed", "unconfirmed", "direct", "relay", "none", "ok", "warning", "error", "unknown", "off",
	"inbound", "outbound", "exported", "imported", "waiting", "ungranted", "refused", "auth", "apiServer", "gateway", "verdict", "joined", "restart",
	"cloud", "hub", "site-1", "site-10", "site-2", "shop/web", "PST0101", "INFO", "TCP", "UDP", "198.51.100.7:51820", "postern peer list", "`rm -rf /`",
	"", "\x00", "\n", "\r\n", "\t", "\x1b[2J", "\x1b]52;c;ZXZpbA==\a", "\x1b[31m", "\x9b31m", "\u202e", "\u200b", "\u0301", "\xff\xfe", "門門門門", "👩‍👩‍👧", "ｆｕｌｌ", "한국어", "█",
	strings.Repeat("long ", 200), strings.Repeat("門", 500),
}

func (w wild) text() string {
	s := words[w.IntN(len(words))]
	for w.IntN(4) == 0 {
		s += words[w.IntN(len(words))]
	}
	return s
}

func (w wild) number() float64 {
	return []float64{0, 1, -1, 0.5, 1e-9, float64(w.IntN(1e6)), 1e308, -1e308, math.MaxInt64}[w.IntN(9)]
}

// fill fills a value of any of the API's types; deep bounds the lists.
func (w wild) fill(v reflect.Value, deep int) {
	if t, ok := v.Addr().Interface().(*time.Time); ok {
		*t = []time.Time{{}, time.Now(), time.Now().Add(-time.Duration(w.Int64N(int64(30 * time.Hour)))), time.Now().Add(time.Hour), time.Unix(1<<40, 0)}[w.IntN(5)]
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			w.fill(v.Field(i), deep)
		}
	case reflect.Slice:
		if deep > 0 {
			w.list(v, w.IntN(4), deep)
		}
	case reflect.Map:
		if deep > 0 {
			v.Set(reflect.MakeMap(v.Type()))
			for range w.IntN(3) {
				k, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
				w.fill(k, deep-1)
				w.fill(e, deep-1)
				v.SetMapIndex(k, e)
			}
		}
	case reflect.Pointer:
		if w.IntN(2) == 0 {
			v.Set(reflect.New(v.Type().Elem()))
			w.fill(v.Elem(), deep)
		}
	case reflect.String:
		v.SetString(w.text())
	case reflect.Bool:
		v.SetBool(w.IntN(2) == 0)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(w.number())
	case reflect.Int, reflect.Int64, reflect.Int32, reflect.Int16, reflect.Int8:
		v.SetInt(int64(w.number()))
	case reflect.Uint, reflect.Uint64, reflect.Uint32, reflect.Uint16, reflect.Uint8:
		v.SetUint(uint64(max(0, w.number())))
	}
}

// list makes a list of n elements.
func (w wild) list(v reflect.Value, n, deep int) {
	v.Set(reflect.MakeSlice(v.Type(), n, n))
	for i := range n {
		w.fill(v.Index(i), deep-1)
	}
}

// gateway fills f with arbitrary responses; mostly with a few peers, or none, and seldom with a
// thousand.
func (w wild) gateway(f *fake) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, doc := range []any{&f.status, &f.report, &f.log, &f.past, &f.services} {
		w.fill(reflect.ValueOf(doc).Elem(), 4)
	}
	for _, name := range []string{"a peer", "services", "checks"} {
		if w.IntN(100) > 0 {
			continue
		}
		const lots = 1000
		switch name {
		case "a peer":
			w.list(reflect.ValueOf(&f.status.Peers).Elem(), lots, 2)
		case "services":
			w.list(reflect.ValueOf(&f.services.Services).Elem(), lots, 2)
		case "checks":
			w.list(reflect.ValueOf(&f.report.Checks).Elem(), lots, 2)
		}
	}
	f.services.Enabled = true
	if f.err = nil; w.IntN(8) == 0 {
		f.err = errors.New(w.text())
	}
	f.refusal = f.err
}

// anyKey maps a byte of a script to a key.
var anyKey = func() (keys []tea.KeyMsg) {
	for _, r := range "123456789jkgG?swbprc+-=:/!lLfznamyhl q門é\u0301\x00 " {
		keys = append(keys, tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune{r}})
	}
	for _, t := range []tea.KeyType{tea.KeyEnter, tea.KeyEsc, tea.KeyTab, tea.KeyShiftTab, tea.KeyUp, tea.KeyDown, tea.KeyLeft, tea.KeyRight, tea.KeyPgUp, tea.KeyPgDown,
		tea.KeyHome, tea.KeyEnd, tea.KeyBackspace, tea.KeyDelete, tea.KeyCtrlU, tea.KeyCtrlW, tea.KeyCtrlZ, tea.KeyCtrlC, tea.KeySpace, tea.KeyF1} {
		keys = append(keys, tea.KeyMsg{Type: t})
	}
	return keys
}()

// does returns the message that a byte of a script encodes.
func (w wild) does(s *stage, b byte) tea.Msg {
	switch {
	case int(b) < 2*len(anyKey):
		return anyKey[int(b)%len(anyKey)]
	case b < 170: // typed or pasted at once
		runes := []rune(w.text())
		return tea.KeyMsg{Type: tea.KeyRunes, Runes: runes[:min(len(runes), 60)], Paste: b%2 == 0}
	case b < 190:
		commands := s.commands()
		c := commands[w.IntN(len(commands))].name + " " + w.text()
		for _, r := range ":" + c {
			s.Update(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune{r}})
		}
		return tea.KeyMsg{Type: tea.KeyEnter}
	case b < 205:
		return tea.WindowSizeMsg{Width: w.IntN(260), Height: w.IntN(90)}
	case b < 225:
		return tea.MouseMsg{X: w.IntN(260) - 2, Y: w.IntN(90) - 2, Action: tea.MouseAction(w.IntN(3)), Button: tea.MouseButton(w.IntN(12))}
	case b < 230:
		return []tea.Msg{tea.BlurMsg{}, tea.FocusMsg{}}[b%2]
	case b < 240:
		w.gateway(s.gateway)
	}
	// Time passes: mostly a second, and now and then longer than anything is kept.
	time.Sleep([]time.Duration{time.Second, time.Second, time.Second, time.Minute, 2 * time.Hour}[w.IntN(5)])
	s.Update(nil)
	return tickMsg{}
}

// FuzzScreen uses the screen according to a script, over gateways with arbitrary responses.
func FuzzScreen(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 4 * walks {
		script := make([]byte, 40)
		for i := range script {
			script[i] = byte(r.IntN(256))
		}
		f.Add(r.Uint64(), script)
	}
	f.Fuzz(func(t *testing.T, seed uint64, script []byte) {
		synctest.Test(t, func(t *testing.T) { // which fails if anything that was started in it is left
			w := wild{rand.New(rand.NewPCG(seed, 1))}
			s := &stage{T: t, gateway: &fake{}}
			w.gateway(s.gateway)
			tasks := newTasks(t.Context())
			defer tasks.close()
			gateway := NamedSource{Name: w.text(), Source: s.gateway, Operator: s.gateway}
			s.model = newModel(Options{
				Sources: []NamedSource{gateway, gateway}[:1+w.IntN(2)], Color: seed%2 == 0, Theme: theme.BuiltIn()[w.IntN(len(theme.BuiltIn()))], Graph: graphs()[w.IntN(3)], Out: &s.written, Note: w.text,
			}, tasks)
			s.Update(tea.WindowSizeMsg{Width: w.IntN(260), Height: w.IntN(90)})
			s.do(s.poll())
			for i, b := range script[:min(len(script), 80)] {
				msg := w.does(s, b)
				_, cmd := s.Update(msg)
				if s.data.width > 0 && s.data.height > 0 {
					fits(t, s.View(), s.data.width, s.data.height)
				}
				s.do(cmd)
				if t.Failed() {
					t.Fatalf("after step %d: %T %v", i, msg, msg)
				}
			}
			for sequence := range strings.SplitAfterSeq(s.written.String(), "\a") {
				if body, ok := strings.CutPrefix(sequence, "\x1b]52;c;"); sequence != "" && (!ok || strings.ContainsFunc(strings.TrimSuffix(body, "\a"), func(r rune) bool { return r < ' ' || r > '~' })) {
					t.Errorf("written besides the picture: %q", sequence)
				}
			}
		})
	})
}
