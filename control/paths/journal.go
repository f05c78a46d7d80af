package paths

import (
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/roster"
	"github.com/postern-dev/postern/discovery/path"
	"github.com/postern-dev/postern/tunnel/peer"
)

// journalLength is how many changes of a path are kept for each peer: enough to tell the story of a
// bad night, few enough to read.
const journalLength = 20

// journal keeps the recent changes of each peer's path, oldest first.
type journal struct {
	mu     sync.Mutex
	events map[peer.PublicKey][]api.PathEvent
}

func newJournal() *journal { return &journal{events: map[peer.PublicKey][]api.PathEvent{}} }

func (j *journal) add(k peer.PublicKey, at time.Time, event, reason string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	list := append(j.events[k], api.PathEvent{At: at.UTC(), Event: event, Reason: reason})
	j.events[k] = list[max(0, len(list)-journalLength):]
}

func (j *journal) of(k peer.PublicKey) []api.PathEvent {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]api.PathEvent{}, slices.Clone(j.events[k])...)
}

// happened records a change of a peer's path and reports it.
func (p *Finder) happened(m *roster.Member, at time.Time, event, reason string) {
	p.journal.add(m.Key, at, event, reason)
	p.o.Tell.Noted(m.Name, api.HistoryEvent{At: at, Kind: api.EventPath, Event: event, Reason: reason})
}

// noted reports what the path finder noted.
func (p *Finder) noted(k peer.PublicKey, n path.Note) {
	m := p.peers.Load().ByKey(k)
	if m == nil {
		return
	}
	kind := api.EventPath
	if n.Event == path.EventRestarted {
		kind = api.EventRestart
	}
	p.o.Tell.Noted(m.Name, api.HistoryEvent{At: n.At, Kind: kind, Event: n.Event, Reason: n.Reason})
}

func (j *journal) drop(k peer.PublicKey) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.events, k)
}
