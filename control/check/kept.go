package check

import (
	"errors"
	"syscall"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
)

// NameKept checks whether the state directory keeps what is written to it.
const NameKept = "state-directory"

// lossTold is how long lost state files are reported, statePatience how long a check waits for the
// disk, and stateHangs when a disk counts as hanging and not just busy.
const (
	lossTold      = time.Hour
	statePatience = 2 * time.Second
	stateHangs    = 5 * time.Second
)

var errStateHangs = errors.New("the disk does not answer")

// kept is the condition of the gateway's state on disk.
type kept struct {
	err      error
	restored []string
	at       time.Time // when the last of these was
}

// tried returns what is known after another try.
func (k kept) tried(try func() ([]string, error), now time.Time) kept {
	restored, err := try()
	if k.err = err; len(restored) > 0 {
		k.restored, k.at = restored, now
	}
	return k
}

// hanging returns what is known while a try, begun at since, is running; zero is never.
func (k kept) hanging(since, now time.Time) kept {
	if !since.IsZero() && now.Sub(since) >= stateHangs {
		k.err = errStateHangs
	}
	return k
}

// findings are there only while something is wrong, or was within the last hour.
func (k kept) findings(now time.Time) []verdict.Finding {
	var p catalogue.Params
	p.Inbound = true
	r := beginOwn(NameKept)
	switch {
	case k.err != nil:
		p.Detail = catalogue.Reason(k.err)
		switch {
		case errors.Is(k.err, syscall.ENOSPC), errors.Is(k.err, syscall.EDQUOT):
			p.Failure = catalogue.FailureFull
		case errors.Is(k.err, syscall.EROFS):
			p.Failure = catalogue.FailureReadOnly
		}
		return []verdict.Finding{r.fail(api.Error, "disk", catalogue.StateUnwritable, p)}
	case len(k.restored) > 0 && now.Sub(k.at) < lossTold:
		p.Names = k.restored
		return []verdict.Finding{r.fail(api.Warning, "disk", catalogue.StateDeleted, p)}
	}
	return nil
}
