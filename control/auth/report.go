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
	// A report is sent when a verdict changes, at most every 5 s: a peer that sends more than one
	// per second is abusive.
	reportRate  = rate.Limit(1)
	reportBurst = 1
)

// report handles what the caller found when it tried to reach us. It is open to every peer
// regardless of grants: one that reaches nothing has the most to say.
func (s *Server) report(_ context.Context, c *call, m message) (any, error) {
	if err := s.o.OnReport(c.PublicKey, m); err != nil {
		return nil, newError(codeBadRequest, "report: "+clean(err.Error(), 120))
	}
	return taken{speaks}, nil
}

// reportFor returns the report to send with a hello; nil if there is none.
func (s *Server) reportFor(c Caller) json.RawMessage {
	if s.o.Report == nil {
		return nil
	}
	if report := s.o.Report(c.PublicKey); len(report) <= MaxReport && json.Valid(report) {
		return report
	}
	return nil
}

// Report sends a report to the peer. A gateway that supports none answers an ErrRequest, one that
// has just had one an ErrRateLimited.
func (c *Client) Report(ctx context.Context, report []byte) error {
	var out taken
	return c.do(ctx, http.MethodPost, pathReport, json.RawMessage(report), &out)
}
