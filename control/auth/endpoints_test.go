package auth

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/control/bounded"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/tunnel/peer"
)

// Every endpoint of the table must say who may call it, how often, and how large body and answer
// may be.
func TestEveryEndpointSaysWhoMayAskAndHowMuch(t *testing.T) {
	seen := map[string]bool{}
	for _, e := range endpoints {
		name := e.method + " " + e.path
		if seen[name] {
			t.Errorf("%s is in the table twice", name)
		}
		seen[name] = true
		p := e.pace
		if p == (pace{}) {
			p = paces[e.cost]
		}
		for what, is := range map[string]bool{
			"a method and a path":             e.method != "" && strings.HasPrefix(e.path, "/v1/"),
			"callers":                         e.callers != 0,
			"no stock peer among its callers": e.callers&byStock == 0,
			"a cost":                          e.cost >= costNone && e.cost <= costWrite,
			"a pace":                          p.rate > 0 && p.burst > 0,
			"at most a write in a second":     e.cost != costWrite || 60*float64(p.rate)+float64(p.burst) <= 60,
			"a bound of its answer":           e.answer > 0,
			"a bound of its body":             e.body > 0 == (e.request != reflect.TypeFor[nothing]()),
			"a body of at most 32 KB":         e.body <= pemBody || !e.isMessage(),
			"an event for a refusal":          e.refusal != "",
			"a handler":                       e.request != nil && e.parse != nil && e.do != nil,
			"a word for where it is missing":  (e.has == nil) == (e.missing == nil),
			"a name for what can be missing":  e.has == nil || e.capability != "",
			"an answer, or a load":            e.said != nil || e.path == pathThroughput,
		} {
			if !is {
				t.Errorf("%s has not: %s", name, what)
			}
		}
		if e.isMessage() {
			if open := bounded.Unbounded(e.request); open != nil {
				t.Errorf("%s: fields of its request without a bound: %v", name, open)
			}
		}
		if e.said != nil {
			if open := bounded.Unbounded(e.said); open != nil {
				t.Errorf("%s: fields of its answer without a bound: %v", name, open)
			}
		}
		if row := row(e); !bytes.Contains(readme(t), []byte(row)) {
			t.Errorf("README.md lacks this row of the table:\n%s", row)
		}
	}
	for _, m := range []any{errorBody{}, tokenClaims{}} {
		if open := bounded.Unbounded(reflect.TypeOf(m)); open != nil {
			t.Errorf("fields of %T without a bound: %v", m, open)
		}
	}
	if Serves(KindStock) || !Serves(KindPeer) || !Serves(KindOneTime) {
		t.Error("only peers and ticket holders may be served")
	}
}

func readme(t *testing.T) []byte {
	t.Helper()
	b, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// row returns an endpoint's row in the README.
func row(e endpoint) string {
	var who []string
	for i, name := range []string{"peer", "pending", "ticket", "stock"} {
		if e.callers&(1<<i) != 0 {
			who = append(who, name)
		}
	}
	if e.needs != nil {
		who = append(who, "with "+strings.Join(e.needs, ", "))
	}
	if e.outside {
		who = append(who, "token")
	}
	size := func(n int) string {
		switch {
		case n == 0:
			return "none"
		case n < 1<<20:
			return strconv.Itoa(n>>10) + " KB"
		}
		return strconv.Itoa(n>>20) + " MB"
	}
	_, p := e.bucket()
	return fmt.Sprintf("| `%s %s` | %s | %s | %s | %s | %g/s, %d in a row |", e.method, e.path, strings.Join(who, " · "),
		size(e.body), size(e.answer), []string{"", "none", "read", "write"}[e.cost], float64(p.rate), p.burst)
}

// hostile are texts that must not be repeated in answers.
var hostile = []string{"\x1b[2J", "$(reboot)", "`reboot`", "'; rm -rf /", "\u202egnp", "\x00", "../../etc/passwd", "postern:peer:berlin"}

// changed counts the calls of handlers.
type changed struct{ redeemed, issued, rotated, paths, reports int }

// everything returns a gateway with all optional parts.
func everything(dir Directory, log *audit.Log, n *changed) *Server {
	s, err := NewServer(ServerOptions{
		Name: "cloud", Software: "postern test", Directory: dir, Audit: log,
		Issuer: func() Issuer { return counting{&n.issued} },
		Redeemer: redeemer(func(peer.PublicKey, ticket.Request) (ticket.Grant, error) {
			n.redeemed++
			return ticket.Grant{Name: "edge"}, nil
		}),
		OnPath: func(_ peer.PublicKey, b []byte) error {
			n.paths++
			return bounded.ErrMalformed // like the gateway's parser, which rejects all hostile bodies
		},
		OnReport: func(_ peer.PublicKey, b []byte) error { n.reports++; return bounded.ErrMalformed },
		OnRotation: func(context.Context, Announcement) error {
			n.rotated++
			return nil
		},
	})
	if err != nil {
		panic(err)
	}
	return s
}

// counting is an issuer that rejects like the real ones, and counts what it would issue.
type counting struct{ n *int }

func (counting) Tokens() bool          { return false }
func (counting) User(s Subject) string { return s.User() }
func (c counting) Issue(_ context.Context, s Subject, csrPEM []byte) (Issuance, error) {
	if _, err := ExactRequest(csrPEM, s.User()); err != nil {
		return Issuance{}, err
	}
	*c.n++
	return Issuance{}, nil
}
func (counting) Revoke(Subject) Revocation { return Revocation{} }

// kinds returns callers of every kind.
func kinds() (*directory, map[string]Caller) {
	dir := &directory{callers: map[netip.Addr]Caller{}}
	list := map[string]Caller{
		"peer":           edge,
		"ungranted peer": {Name: "berlin", PublicKey: berlinKey},
		"pending":        {Name: "new", PublicKey: peer.PublicKey{4}, Pending: true, Grants: edge.Grants},
		"ticket":         {PublicKey: ticketKey, Kind: KindOneTime, Grants: edge.Grants},
		"stock":          {Name: "router", PublicKey: peer.PublicKey{5}, Kind: KindStock, Grants: edge.Grants},
	}
	for _, c := range list {
		dir.set(c)
	}
	list["stranger"] = Caller{PublicKey: peer.PublicKey{99}}
	return dir, list
}

// bodies returns hostile bodies of every kind for an endpoint: each has one defect in an
// otherwise valid request.
func bodies(e endpoint) map[string]string {
	good := map[string]string{
		pathRedeem:   fmt.Sprintf(`"version":"1.0","publicKey":%q,"name":"edge"`, edgeKey),
		pathIdentity: `"version":"1.0","csr":"x"`,
		pathRotation: fmt.Sprintf(`"version":"1.0","publicKey":%q,"proof":"AQID"`, berlinKey),
	}[e.path]
	if good == "" {
		good = `"version":"1.0"`
	}
	with := func(more string) string { return "{" + good + "," + more + "}" }
	out := map[string]string{
		"nothing":            "",
		"no JSON":            "\x1b[2J$(reboot)",
		"half":               "{" + good,
		"a list":             "[]",
		"a text":             `"$(reboot)"`,
		"a number":           `1e999`,
		"two documents":      "{" + good + "}{" + good + "}",
		"too long":           with(`"x":"` + strings.Repeat("x", e.body) + `"`),
		"too long for all":   with(`"x":"` + strings.Repeat("x", 4<<20) + `"`),
		"too deep":           with(`"x":` + strings.Repeat("[", 500) + strings.Repeat("]", 500)),
		"deeper than Go":     strings.Repeat(`[`, min(e.body, 20000)),
		"too many":           with(`"x":[` + strings.Repeat("0,", 1700) + strings.Repeat("{},", 4000) + `0]`),
		"duplicate keys":     with(`"version":"1.0"`),
		"duplicates by case": with(`"VERSION":"1.0"`),
		"duplicates inside":  with(`"x":{"a":1,"a":2}`),
		"not in UTF-8":       with("\"x\":\"\xff\xfe\""),
		"a long key":         with(`"` + strings.Repeat("k", 1000) + `":1`),
	}
	if e.request.Kind() != reflect.Struct {
		return out
	}
	// Each field with each value that it must not have.
	var fields func(t reflect.Type)
	fields = func(t reflect.Type) {
		for i := range t.NumField() {
			f := t.Field(i)
			if f.Anonymous {
				fields(f.Type)
				continue
			}
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			wrong := map[string]string{
				"of another type": `{"$(reboot)":"\u001b[2J"}`, "out of range": `-1e400`, "a list of lists": `[[["` + "`reboot`" + `"]]]`,
			}
			if f.Type.Kind() == reflect.String || f.Type.Kind() == reflect.Slice {
				wrong["too long"] = `"` + strings.Repeat("A", 17000) + `"`
				for i, s := range hostile {
					text, err := json.Marshal(s)
					if err != nil {
						panic(err)
					}
					wrong[fmt.Sprintf("hostile %d", i)] = string(text)
					wrong[fmt.Sprintf("hostile %d in a list", i)] = "[" + string(text) + "]"
				}
				wrong["too many"] = `[` + strings.Repeat(`"auth",`, 40) + `"auth"]`
				wrong["too many things"] = `[` + strings.Repeat(`{},`, 40) + `{}]`
			}
			for what, value := range wrong {
				text := strings.Replace(with(""), ",}", "}", 1)
				var m map[string]json.RawMessage
				if err := json.Unmarshal([]byte(text), &m); err != nil {
					panic(err)
				}
				m[name] = json.RawMessage(value)
				var b bytes.Buffer
				b.WriteString("{")
				for i, k := range slices.Sorted(mapKeys(m)) {
					if i > 0 {
						b.WriteString(",")
					}
					fmt.Fprintf(&b, "%q:%s", k, m[k])
				}
				b.WriteString("}")
				out[name+" is "+what] = b.String()
			}
		}
	}
	fields(e.request)
	return out
}

func mapKeys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// ask makes a server answer one request of a caller.
func ask(s http.Handler, from peer.PublicKey, method, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(context.Background(), method, "http://x"+path, strings.NewReader(body))
	r.RemoteAddr = netip.AddrPortFrom(peer.OverlayAddr(from), 40000).String()
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// Hostile requests to every endpoint are refused in the documented form, without effect.
func TestHostileBodiesAreRefusedEverywhere(t *testing.T) {
	for _, e := range endpoints {
		if !e.isMessage() {
			continue
		}
		for what, body := range bodies(e) {
			dir, callers := kinds()
			for kind, c := range callers {
				var n changed
				s := everything(dir, nil, &n)
				w := ask(s, c.PublicKey, e.method, e.path, body)
				checkRefusal(t, fmt.Sprintf("%s %s, %s, %s", e.method, e.path, kind, what), w)
				n.paths, n.reports = 0, 0 // their parsers refuse hostile bodies
				if n != (changed{}) {
					t.Errorf("%s %s, %s, %s: got effects %+v", e.method, e.path, kind, what, n)
				}
			}
		}
	}
}

// checkRefusal checks for a documented refusal that repeats nothing of the request.
func checkRefusal(t *testing.T, what string, w *httptest.ResponseRecorder) {
	t.Helper()
	var b errorBody
	if err := bounded.Unmarshal(w.Body.Bytes(), smallBody, &b); err != nil {
		t.Errorf("%s: the answer is not of the form: %v", what, err)
		return
	}
	r, known := refusalOf(b.Code)
	if !known || w.Code != r.status || w.Code < 400 || w.Code > 499 && w.Code != http.StatusNotImplemented || b.Version != ProtocolVersion || b.Message == "" {
		t.Errorf("%s: got %d %+v", what, w.Code, b)
	}
	if len(b.Message) > maxMessage+10 {
		t.Errorf("%s: the message has %d bytes", what, len(b.Message))
	}
	for _, s := range hostile[:7] { // the last is a caller's own name
		if strings.Contains(b.Message, s) {
			t.Errorf("%s: %q comes back: %q", what, s, b.Message)
		}
	}
}

// The table determines who may send which request, in each tunnel and outside.
func TestTheTableSaysWhoMayAsk(t *testing.T) {
	for _, e := range endpoints {
		dir, callers := kinds()
		for kind, c := range callers {
			var n changed
			log := &records{}
			s := everything(dir, audit.New(jsonLogger(log)), &n)
			w := ask(s, c.PublicKey, e.method, e.path, "{}")
			may := kind == "peer" || kind == "ungranted peer" && e.needs == nil && e.callers&byPeer != 0 ||
				kind == "pending" && e.callers&byPending != 0 || kind == "ticket" && e.callers&byTicket != 0
			may = may && (kind != "peer" || e.callers&byPeer != 0)
			if denied := w.Code == http.StatusForbidden; denied == may {
				t.Errorf("%s %s, %s: got %d, may ask: %v", e.method, e.path, kind, w.Code, may)
			}
			if got := len(log.events(e.refusal)); !may && got != 1 || may && got != 0 {
				t.Errorf("%s %s, %s: %d refusals were recorded", e.method, e.path, kind, got)
			}
		}
		// A wrong method gets a list of the path's methods.
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "DELETE", "BREW"} {
			if x, methods := lookup(method, e.path); x == nil {
				w := ask(everything(dir, nil, new(changed)), edgeKey, method, e.path, "")
				if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != strings.Join(methods, ", ") {
					t.Errorf("%s %s: got %d, Allow %q", method, e.path, w.Code, w.Header().Get("Allow"))
				}
			}
		}
		var n changed
		s := everything(dir, nil, &n)
		tokens, err := NewDirectTokens(peer.PrivateKeyFromBytes([32]byte{1}))
		if err != nil {
			t.Fatal(err)
		}
		token, _, err := tokens.Make(edgeKey, time.Now(), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequestWithContext(t.Context(), e.method, "http://x"+e.path, strings.NewReader("{}"))
		r.Header.Set("Authorization", "Bearer "+string(token))
		w := httptest.NewRecorder()
		s.OutOfBand(tokens).ServeHTTP(w, r)
		if there := w.Code != http.StatusNotFound; there != e.outside {
			t.Errorf("%s %s outside: got %d", e.method, e.path, w.Code)
		}
	}
}

// The holders of a ticket, and those of all tickets together, cause at most a write a second after
// a burst, however often they ask. Strangers cost no more than a few answers.
func TestNobodyCausesMoreThanAWriteASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, _ := kinds()
		var n changed
		s := everything(dir, nil, &n)
		body := fmt.Sprintf(`{"version":"1.0","publicKey":%q,"name":"edge"}`, edgeKey)
		full := func(seconds, rate int, callers ...peer.PublicKey) {
			for range seconds * rate {
				for _, k := range callers {
					ask(s, k, http.MethodPost, pathRedeem, body)
				}
				time.Sleep(time.Second / time.Duration(rate)) // virtual
			}
		}
		full(60, 50, ticketKey)
		if n.redeemed > 60 || n.redeemed < 30 {
			t.Errorf("one ticket: %d redemptions in 60 s, want up to 60", n.redeemed)
		}
		n.redeemed = 0
		var tickets []peer.PublicKey
		for i := range ticket.MaxOpen {
			k := peer.PublicKey{7, byte(i), byte(i >> 8)}
			dir.set(Caller{PublicKey: k, Kind: KindOneTime})
			tickets = append(tickets, k)
		}
		full(60, 1, tickets...)
		if most := ticketBurst + 60; n.redeemed > most {
			t.Errorf("%d tickets: %d redemptions in 60 s, want at most %d", len(tickets), n.redeemed, most)
		}
		before := s.Decisions()[codeUnknownPeer]
		full(10, 50, peer.PublicKey{98}, peer.PublicKey{99})
		if n := s.Decisions()[codeUnknownPeer] - before; n > unknownBurst+10*uint64(unknownRate) {
			t.Errorf("strangers got %d answers in 10 s", n)
		}
	})
}

// FuzzEndpoints sends arbitrary data to each endpoint from each kind of caller.
func FuzzEndpoints(f *testing.F) {
	for i, e := range endpoints {
		for _, body := range bodies(e) {
			if len(body) < 4<<10 {
				f.Add(uint8(i), []byte(body))
			}
		}
		f.Add(uint8(i), fmt.Appendf(nil, `{"version":"1.0","publicKey":%q,"name":"edge","candidates":[{"address":"192.0.2.1:1","source":"host"}],"wants":["auth"]}`, edgeKey))
	}
	dir, callers := kinds()
	f.Fuzz(func(t *testing.T, at uint8, body []byte) {
		e := endpoints[int(at)%len(endpoints)]
		if !e.isMessage() {
			return
		}
		for kind, c := range callers {
			s := everything(dir, nil, new(changed))
			w := ask(s, c.PublicKey, e.method, e.path, string(body))
			if w.Body.Len() > e.answer {
				t.Errorf("%s: an answer of %d bytes", kind, w.Body.Len())
			}
			if w.Code >= 500 && w.Code != http.StatusNotImplemented {
				t.Errorf("%s: status %d: %s", kind, w.Code, w.Body)
			}
			if w.Code != http.StatusOK {
				checkRefusal(t, kind, w)
			} else if e.callers&c.kind() == 0 || kind == "stranger" {
				t.Errorf("%s was answered", kind)
			}
		}
	})
}

// Plain WireGuard peers, with any number of addresses, share the connection limit of strangers.
func TestStockPeersShareTheConnectionsOfStrangers(t *testing.T) {
	dir, _ := kinds()
	s := everything(dir, nil, new(changed))
	if stock, stranger := s.whose(peer.OverlayAddr(peer.PublicKey{5})), s.whose(netip.MustParseAddr("10.0.0.1")); stock.IsValid() || stranger.IsValid() {
		t.Errorf("a stock peer is %v and a stranger %v", stock, stranger)
	}
	if a, b := s.whose(peer.OverlayAddr(edgeKey)), s.whose(peer.OverlayAddr(berlinKey)); a == b || !a.IsValid() {
		t.Errorf("two peers are %v and %v", a, b)
	}
}
