package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/kube"
	"github.com/postern-dev/postern/control/kube/exposure"
	"github.com/postern-dev/postern/control/predict"
	"github.com/postern-dev/postern/tui"
)

const (
	// contextPrefix is the prefix of a source of check --predict that is a context of the
	// kubeconfig.
	contextPrefix = "context:"
	// readClusterTimeout bounds the reading of one cluster.
	readClusterTimeout = 20 * time.Second
)

// errUnread: the cluster does not say how it is exposed.
var errUnread = errors.New("it is not known how the cluster is exposed")

// clusterExposure reads a cluster's exposure: source is context:NAME or context:NAME/NAMESPACE.
// What could not be read, and existing problems, are printed to stderr.
func (a *app) clusterExposure(ctx context.Context, source string) ([]predict.Exposure, error) {
	name, namespace, _ := strings.Cut(strings.TrimPrefix(source, contextPrefix), "/")
	chosen := a.cluster.chosen
	chosen.CurrentContext = name
	if namespace != "" {
		chosen.Context.Namespace = namespace
	}
	c, err := kube.ConnectContext(chosen, "postern/"+buildVersion().Version)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readClusterTimeout)
	defer cancel()
	e, problems, err := exposure.Read(ctx, c, exposure.ReadOptions{Name: clusterName(name), Service: a.cluster.release})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnread, err)
	}
	for _, p := range problems {
		cause, fix := catalogue.Render(p.Code, p.Params)
		fmt.Fprintf(a.stderr, "%s: %s %s (%s)\n", tui.Printable(name), p.Code, tui.Printable(cause), tui.Printable(fix.String()))
	}
	return []predict.Exposure{e}, nil
}

// clusterName converts a context's name, which may be any text, to a DNS label.
func clusterName(s string) string {
	label := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, s)
	if cut := len(label) - api.MaxNameLength; cut > 0 {
		label = label[cut:] // contexts usually differ at the end
	}
	return strings.Trim(label, "-")
}
