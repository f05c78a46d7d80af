package state

import (
	"context"
	"errors"

	"github.com/postern-dev/postern/tunnel/peer"
)

// Backend stores copies of the state files where they outlive the directory. It is safe for
// concurrent use.
type Backend interface {
	// Load returns every file, by name. It is no error if there are none. From then on only the
	// caller may write them: earlier writers are fenced.
	Load(ctx context.Context) (map[string][]byte, error)
	// Save replaces one file, durably if it returns nil. After an error either the old or the new
	// one is there; an [ErrFenced] says that another gateway writes now and that nothing was
	// written.
	Save(ctx context.Context, name string, data []byte) error
}

// Tenure is an optional interface of a [Backend] that knows since when its owner has been the only
// writer.
type Tenure interface {
	// Term names the time during which nobody else can have written. A later term of the same owner
	// has another name if anyone else could write in between. Empty means unknown.
	Term() string
}

// Witness is an optional interface of a [Backend] that knows from elsewhere which key the gateway
// had.
type Witness interface {
	// HadKey returns the last known key; zero if there is none.
	HadKey() peer.PublicKey
}

var (
	// ErrFenced: another gateway has taken over the backend, and this one is no longer active.
	ErrFenced = errors.New("another gateway has taken over the state")
	// ErrBackend: the backend did not store a file, so the change is not in force.
	ErrBackend = errors.New("not kept outside of this pod")
)

// Option of [Open].
type Option func(*options)

type options struct{ backend Backend }

// WithBackend stores the files in b as well; see the package comment. nil means no backend.
func WithBackend(b Backend) Option { return func(o *options) { o.backend = b } }
