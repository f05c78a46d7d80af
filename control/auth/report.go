package auth

import (
	"context"
	"encoding/json"
	"net/http"

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

// report takes what the caller found when it tried to reach us. It is open to every peer
// whatever it is granted: one that reaches nothing has the most to say.
func (s *Server) report(_ context.Context, c *call, m message) (any, error) {
	if err := s.o.OnReport(c.PublicKey, m); err != nil {
		return nil, newError(codeBadRequest, "report: "+clean(err.Error(), 120))
	}
	return taken{speaks}, nil
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
	var out taken
	return c.do(ctx, http.MethodPost, pathReport, json.RawMessage(report), &out)
}
