package check

import (
	"slices"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
)

// NameStrangers is the check of keys of no peer that dial this gateway.
const NameStrangers = "unknown-keys"

// dialsFor is how long a key of no peer must have dialled. One that joins dials for a moment before
// it is a peer.
const dialsFor = 10 * time.Second

// strangers reports the first key of no peer that keeps dialling, and how many others do. Such a
// gateway gets no answer, so only this one can tell why. Without any there is no check.
func strangers(o Own, now time.Time) []verdict.Finding {
	dialling := slices.DeleteFunc(slices.Clone(o.Strangers), func(s Stranger) bool {
		return s.Last.Sub(s.First) < dialsFor || now.Sub(s.Last) >= evidenceLife
	})
	if len(dialling) == 0 {
		return nil
	}
	s := dialling[0]
	p := catalogue.Params{Inbound: true, Limit: len(dialling) - 1}
	p.Found, p.From, p.Seen, p.Removed = s.Fingerprint, s.From, s.Last, s.Removed
	r := beginOwn(NameStrangers)
	r.Sure = api.Likely // anyone may repeat what was sent before
	return []verdict.Finding{r.found(api.Warning, StageHandshake, catalogue.UnknownKey, p)}
}
