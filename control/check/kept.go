package check

import (
	"errors"
	"syscall"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
)

// NameKept is the check of whether the state directory keeps what is written into it.
const NameKept = "state-directory"

// lossTold is how long it is reported that files of the state were gone, statePatience how long a check
// waits for the disk, and stateHangs after what time a disk is not just busy.
const (
	lossTold      = time.Hour
	statePatience = 2 * time.Second
	stateHangs    = 5 * time.Second
)

var errStateHangs = errors.New("the disk does not answer")

// kept is what became of the gateway's state on disk.
type kept struct {
	err      error
	restored []string
	at       time.Time // when the last of these was
}

// tried is what is known after another try.
func (k kept) tried(try func() ([]string, error), now time.Time) kept {
	restored, err := try()
	if k.err = err; len(restored) > 0 {
		k.restored, k.at = restored, now
	}
	return k
}

// hanging is what is known while a try goes on, since a time; zero is never.
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
