package state

import (
	"context"
	"errors"

	"github.com/postern-dev/postern/tunnel/peer"
)

// Backend keeps copies of the state files where they outlive the directory. It is safe
// for concurrent use.
type Backend interface {
	// Load gives every file that there is, by name. None is no error. What it gives is
	// from then on the caller's to write: whoever wrote before is fenced.
	Load(ctx context.Context) (map[string][]byte, error)
	// Save replaces one file, and is durable when it returns nil. After an error the old
	// or the new one is there, and nobody knows which; an [ErrFenced] says that somebody
	// else writes by now and that nothing was.
	Save(ctx context.Context, name string, data []byte) error
}

// Tenure is what a [Backend] may also be: one that knows from when on its owner alone
// wrote.
type Tenure interface {
	// Term names the time during which nobody else can have written. A later one of the
	// same owner has another name if anybody else could write in between. Empty says
	// nothing.
	Term() string
}

// Witness is what a [Backend] may also be: one that knows from elsewhere which key the gateway
// had.
type Witness interface {
	// HadKey is the last key that is known; zero when none is.
	HadKey() peer.PublicKey
}

var (
	// ErrFenced: another gateway has taken over the backend, and this one is none any more.
	ErrFenced = errors.New("another gateway has taken over the state")
	// ErrBackend: the backend did not take a file, so the change does not count.
	ErrBackend = errors.New("not kept outside of this pod")
)

// Option of [Open].
type Option func(*options)

type options struct{ backend Backend }

// WithBackend has the files kept in b as well; see the package comment. nil is none.
func WithBackend(b Backend) Option { return func(o *options) { o.backend = b } }
