package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/predict"
	"github.com/postern-dev/postern/control/ticket"
	"github.com/postern-dev/postern/tui"
)

// maxPredict bounds the size of a file for a prediction, in bytes: two Status documents of a
// thousand peers.
const maxPredict = 4 << 20

// maxProse is the width in characters beyond which sentences are hard to read.
const maxProse = 100

// predict predicts what will work between two clusters. It asks the running gateway for what the
// sources do not describe.
func (a *app) predict(ctx context.Context, args []string, f checkFlags) error {
	if len(args) > 0 {
		return usagef("leave PEER out: the clusters are those of the files", "check --predict and PEER do not go together")
	}
	if err := oneOf("-o", f.format, formatTable, formatJSON); err != nil {
		return err
	}
	var found []predict.Exposure
	for _, source := range f.predict {
		some, err := a.exposures(ctx, source)
		if errors.Is(err, errUnread) {
			return failedf("check that its API server answers, and that you may read there", "check --predict: %w", err)
		} else if err != nil {
			return usagef("", "check --predict: %w", err)
		}
		found = append(found, some...)
	}
	where := strings.Join(f.predict, " and ")
	if strings.Contains(strings.ToLower(where), ticket.Prefix) {
		where = "the ticket"
	}
	if len(found) == 1 {
		own, err := a.ownExposure(ctx)
		if err != nil {
			return err
		}
		found = append([]predict.Exposure{own}, found...)
		where += " and this gateway"
	}
	first, second, err := predict.Pair(where, found)
	if err != nil {
		return usagef("", "check --predict: %w", err)
	}
	p := predict.Predict(first, second)
	if f.format == formatJSON {
		err = a.print(formatJSON, "Prediction", p)
	} else {
		for line := range strings.Lines(p.Text(min(a.width(), maxProse))) {
			if _, err = fmt.Fprintln(a.stdout, tui.Printable(strings.TrimSuffix(line, "\n"))); err != nil {
				break
			}
		}
	}
	if err != nil {
		return err
	}
	if m := p.Mode(api.ModeInBand); m.Answer == predict.Fails {
		return failedf("what it lacks is named above", "check --predict: %s and %s cannot peer as they are", p.A, p.B)
	}
	return nil
}

// exposures reads a source: a ticket, a file, - for either on stdin, or the cluster of a context.
func (a *app) exposures(ctx context.Context, source string) ([]predict.Exposure, error) {
	var data []byte
	switch {
	case source == "-":
		var err error
		if data, err = io.ReadAll(io.LimitReader(a.stdin, maxPredict+1)); err != nil {
			return nil, fmt.Errorf("read stdin: %w", err)
		}
		source = "stdin"
	case strings.HasPrefix(source, contextPrefix):
		return a.clusterExposure(ctx, source)
	case isTicket(source):
		data = []byte(source)
	default:
		f, err := os.Open(source)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s does not exist (want a file that describes clusters, or a ticket)", source)
		} else if err != nil {
			return nil, err
		}
		defer f.Close()
		if data, err = io.ReadAll(io.LimitReader(f, maxPredict+1)); err != nil {
			return nil, fmt.Errorf("read %s: %w", source, err)
		}
	}
	if text := strings.TrimSpace(string(data)); isTicket(text) {
		return ticketExposure(text)
	}
	return predict.ReadClusters(source, data)
}

// isTicket reports whether a text is a ticket, in upper case if it comes from a QR code.
func isTicket(text string) bool { return strings.HasPrefix(strings.ToLower(text), ticket.Prefix) }

// ticketExposure returns the inviter's exposure according to a ticket.
func ticketExposure(text string) ([]predict.Exposure, error) {
	t, err := ticket.Decode(text)
	if err != nil {
		return nil, fmt.Errorf("the ticket: %w", err)
	}
	if err := t.Check(time.Now()); err != nil {
		return nil, fmt.Errorf("the ticket: %w", err)
	}
	var candidates []api.Candidate
	for _, c := range t.Candidates {
		candidates = append(candidates, api.Candidate{Address: c.Addr.String(), Source: c.Source})
	}
	return []predict.Exposure{predict.FromCandidates(t.Name, candidates)}, nil
}

// ownExposure returns the running gateway's exposure.
func (a *app) ownExposure(ctx context.Context) (predict.Exposure, error) {
	s, err := a.client().Status(ctx)
	if err != nil {
		return predict.Exposure{}, err
	}
	e := predict.FromStatus(s)
	n, err := a.client().NetCheck(ctx)
	if err != nil {
		return predict.Exposure{}, err
	}
	e.Relay = predict.FromNetCheck(s.Gateway.Name, n).Relay
	return e, nil
}
