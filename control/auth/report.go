package auth

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/time/rate"
)

const (
	// MaxReport bounds a report, in bytes of JSON.
	MaxReport = 16 << 10
	// A report is sent when a verdict changes, and a gateway sends one in 5 s at most:
	// whoever sends more than one in a second means no good.
	reportRate  = rate.Limit(1)
	reportBurst = 1
)

// reportAnswer says that a report was taken.
type reportAnswer struct {
	Version string `json:"version"`
}

// report takes what the caller found when it tried to reach us. It is open to every peer
// whatever it is granted: one that reaches nothing has the most to say.
func (s *Server) report(r *http.Request, caller Caller, a *allowance) (any, error) {
	switch {
	case s.o.OnReport == nil:
		return nil, newError(codeNotFound, "this gateway takes no reports")
	case caller.Kind != KindPeer:
		return nil, newError(codeDenied, "only for peers")
	case caller.Pending:
		return nil, newError(codePending, "the caller's key has yet to be approved")
	}
	if wait := spend(a.reports, time.Now()); wait > 0 {
		return nil, limited(wait)
	}
	if r.ContentLength > MaxReport {
		return nil, reportTooLarge()
	}
	var report json.RawMessage
	if err := readJSON(r, &report); err != nil {
		return nil, err
	}
	if len(report) > MaxReport {
		return nil, reportTooLarge()
	}
	if err := s.o.OnReport(caller.PublicKey, report); err != nil {
		return nil, newError(codeBadRequest, "report: "+clean(err.Error(), 120))
	}
	return reportAnswer{Version: ProtocolVersion}, nil
}

func reportTooLarge() error {
	return newError(codeTooLarge, fmt.Sprintf("the report is larger than %d bytes", MaxReport))
}

// reportFor is the report that goes with a hello; nil when there is none.
func (s *Server) reportFor(c Caller) json.RawMessage {
	if s.o.Report == nil {
		return nil
	}
	if report := s.o.Report(c.PublicKey); len(report) <= MaxReport && json.Valid(report) {
		return report
	}
	return nil
}

// Report hands a report to the peer. A gateway that takes none answers an ErrRequest, one
// that has just taken one an ErrRateLimited.
func (c *Client) Report(ctx context.Context, report []byte) error {
	var out reportAnswer
	if err := c.do(ctx, http.MethodPost, pathReport, json.RawMessage(report), &out); err != nil {
		return err
	}
	return checkAnswerVersion(out.Version)
}
