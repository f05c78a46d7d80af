package ticket

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/audit"
	"github.com/postern-dev/postern/tunnel/peer"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// memory is a Storage that can fail.
type memory struct {
	mu      sync.Mutex
	records Records
	saves   int
	err     error
}

func (m *memory) Tickets() Records {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.records.clone()
}

func (m *memory) SaveTickets(r Records) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return m.err
	}
	m.saves++
	m.records = r.clone()
	return nil
}

// names are the gateway's peers, besides those of the book.
type names map[string]peer.PublicKey

func (n names) Reserve(name string, key peer.PublicKey, _ bool) error {
	if holder, ok := n[name]; ok && holder != key {
		return &NameTakenError{Name: name}
	}
	return nil
}

// desk is a book with everything that it needs.
type desk struct {
	*Book
	t     *testing.T
	store *memory
	names names
	log   *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// events returns the events of the audit records.
func (l *lockedBuffer) events() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for _, line := range bytes.Split(bytes.TrimSpace(l.b.Bytes()), []byte("\n")) {
		var record struct{ Event string }
		if json.Unmarshal(line, &record) == nil && record.Event != "" {
			out = append(out, record.Event)
		}
	}
	return out
}

func count(list []string, what audit.Event) int {
	n := 0
	for _, s := range list {
		if s == string(what) {
			n++
		}
	}
	return n
}

// private returns a key by number.
func private(b byte) peer.PrivateKey { return peer.PrivateKeyFromBytes([32]byte{16: b}) }

func key(b byte) peer.PublicKey { return private(b).Public() }

// privates are all of these keys by public key.
var privates = sync.OnceValue(func() map[peer.PublicKey]peer.PrivateKey {
	out := map[peer.PublicKey]peer.PrivateKey{}
	for b := range byte(255) {
		out[key(b)] = private(b)
	}
	return out
})

var selfKey, self = private(0xee), key(0xee)

func newDesk(t *testing.T, now time.Time) *desk {
	t.Helper()
	d := &desk{t: t, store: &memory{}, names: names{}, log: &lockedBuffer{}}
	d.reopen(now)
	return d
}

// reopen simulates a restart of the gateway.
func (d *desk) reopen(now time.Time) {
	d.t.Helper()
	b, err := OpenBook(now, Options{
		Key: selfKey, Name: "cloud", Storage: d.store, Names: d.names,
		Audit: audit.New(slog.New(slog.NewJSONHandler(d.log, nil))),
	})
	if err != nil {
		d.t.Fatal(err)
	}
	d.Book = b
}

// invite creates a ticket and returns its keys.
func (d *desk) invite(now time.Time, v Invitation) (Ticket, Keys) {
	d.t.Helper()
	k, _, err := d.Invite(now, v)
	if err != nil {
		d.t.Fatal(err)
	}
	keys, err := k.Keys()
	if err != nil {
		d.t.Fatal(err)
	}
	return k, keys
}

func ask(key byte, name string) Request {
	return Request{PublicKey: private(key).Public(), Name: name}
}

// proven adds the proof to a request, if the test knows its key and it has none.
func (d *desk) proven(way Way, k Keys, q Request) Request {
	d.t.Helper()
	if held, ok := privates()[q.PublicKey]; ok && q.Proof == nil {
		if proven, err := q.Prove(way, k.ID, self, held); err == nil { // otherwise the book reports what is wrong with it
			return proven
		}
	}
	return q
}

func standard() Invitation {
	return Invitation{Allow: []string{api.ServiceAuth, api.ServiceAPIServer}}
}

func (d *desk) redeem(now time.Time, k Keys, q Request) (Grant, error) {
	return d.Redeem(now, k.OneTime.Public(), d.proven(InBand, k, q))
}

func (d *desk) mustRedeem(now time.Time, k Keys, q Request) Grant {
	d.t.Helper()
	g, err := d.redeem(now, k, q)
	if err != nil {
		d.t.Fatal(err)
	}
	return g
}

func (d *desk) reply(k Keys, q Request) Reply {
	d.t.Helper()
	text, err := EncodeReply(k, d.proven(ByReply, k, q))
	if err != nil {
		d.t.Fatal(err)
	}
	r, err := DecodeReply(text)
	if err != nil {
		d.t.Fatal(err)
	}
	return r
}
