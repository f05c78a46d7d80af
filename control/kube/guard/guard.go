package guard

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"reflect"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/kube"
)

const (
	// Name is the check of this gateway that shows a missing guard.
	Name = "account-policy"

	// holds is how long a good result is valid. askAgain is the pause after a failed or bad one,
	// which is reported if the next is bad, too: if a policy is installed together with the
	// gateway, it takes the API server a moment to enforce it.
	holds    = 10 * time.Minute
	askAgain = 15 * time.Second
	// requestTimeout bounds one request.
	requestTimeout = 5 * time.Second
)

// Options configure a [Guard]. Cluster, Release, Pod and OnProblems are required.
type Options struct {
	Cluster *kube.Cluster
	// Release is the name of the gateway's account.
	Release string
	// Pod is the name of the gateway's own pod.
	Pod string
	// OnProblems is called by Run when the problems have changed.
	OnProblems func([]check.OwnProblem)
	// Logger may be nil.
	Logger *slog.Logger
}

// Guard sends its probes periodically while [Guard.Run] runs.
type Guard struct {
	o      Options
	client rest.Interface
	again  time.Duration // askAgain
}

// New returns a guard. It sends no request yet.
func New(o Options) (*Guard, error) {
	client, err := o.Cluster.Group(corev1.SchemeGroupVersion)
	if err != nil {
		return nil, fmt.Errorf("guard: %w", err)
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return &Guard{o: o, client: client, again: askAgain}, nil
}

// Run sends probes until ctx ends.
func (g *Guard) Run(ctx context.Context) {
	var told []check.OwnProblem
	bad := 0 // answers in a row
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
		admitted, err := g.Admitted(ctx)
		if err != nil { // the last result stays reported
			g.o.Logger.Debug("failed to find out whether a policy restricts the gateway's account", "error", err)
			next.Reset(g.again)
			continue
		}
		if len(admitted) == 0 {
			bad = 0
			next.Reset(holds)
		} else {
			next.Reset(g.again)
			if bad++; bad == 1 {
				continue
			}
		}
		if now := g.problems(admitted); !reflect.DeepEqual(now, told) {
			told = now
			g.o.OnProblems(now)
		}
	}
}

func (g *Guard) problems(admitted []string) []check.OwnProblem {
	if len(admitted) == 0 {
		return nil
	}
	p := check.OwnProblem{Name: Name, Code: catalogue.AccountUnbounded}
	p.Params.Namespace, p.Params.Account = g.o.Cluster.Namespace(), g.o.Cluster.Namespace()+":"+g.o.Release
	p.Params.Detail = strings.Join(admitted, "; ")
	return []check.OwnProblem{p}
}

// probe is a request that must be refused, and what an attacker could do with it.
type probe struct {
	means string
	verb  string
	// resource and name are the object of the request; a new object has no name.
	resource, name string
	body           any
	// harmless is body without the part that must be refused: a request that the gateway itself
	// sends.
	harmless any
}

func (g *Guard) probes() []probe {
	state := func(secretType corev1.SecretType) any {
		return map[string]any{
			"apiVersion": "v1", "kind": "Secret", "type": secretType,
			"metadata": map[string]any{"name": g.o.Release + "-state-guard-probe", "annotations": map[string]string{corev1.ServiceAccountNameKey: g.o.Release}},
		}
	}
	service := func(externalIPs ...string) any {
		app := map[string]string{"app.kubernetes.io/name": "postern", "app.kubernetes.io/instance": g.o.Release}
		labels, selector := maps.Clone(app), maps.Clone(app)
		labels["app.kubernetes.io/managed-by"], labels["postern.dev/peer"] = "postern", "guard-probe"
		selector["postern.dev/role"] = "active"
		return map[string]any{
			"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "postern-guard-probe", "labels": labels},
			"spec": map[string]any{"externalIPs": externalIPs, "selector": selector, "ports": []any{map[string]any{"port": 1}}},
		}
	}
	annotated := map[string]any{"metadata": map[string]any{"annotations": map[string]string{"postern.dev/guard-probe": ""}}}
	return []probe{
		{"it can have a token of any account of its namespace, by a Secret of type " + string(corev1.SecretTypeServiceAccountToken),
			http.MethodPost, "secrets", "", state(corev1.SecretTypeServiceAccountToken), state("postern.dev/state")},
		{"it can take traffic of the whole cluster, by a Service with externalIPs",
			http.MethodPost, "services", "", service("192.0.2.1"), service()}, // for documentation (RFC 5737)
		{"it can change its own pod, the image included",
			http.MethodPatch, "pods", g.o.Pod, annotated, struct{}{}},
	}
}

// Admitted returns what the account could do that it must not. With an error nothing is known to
// be admitted, and at least one probe had no result.
func (g *Guard) Admitted(ctx context.Context) ([]string, error) {
	var out []string
	var unknown []error
	for _, p := range g.probes() {
		switch admitted, err := g.admits(ctx, p); {
		case err != nil:
			unknown = append(unknown, fmt.Errorf("ask for %s without having it made: %w", p.resource, err))
		case admitted:
			out = append(out, p.means)
		}
	}
	if len(out) > 0 {
		return out, nil
	}
	return nil, errors.Join(unknown...)
}

// admits reports whether the API server would execute p. A refusal only counts if the harmless
// request is admitted: a quota or another webhook may refuse both.
func (g *Guard) admits(ctx context.Context, p probe) (bool, error) {
	err := g.ask(ctx, p, p.body)
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return true, nil
	case !errors.As(err, &status) || !refusal(status.Status().Code):
		return false, err
	case strings.Contains(status.Status().Message, g.noRight()):
		return false, nil
	}
	if harmless := g.ask(ctx, p, p.harmless); harmless != nil {
		return false, fmt.Errorf("%w; and what is harmless: %w", err, harmless)
	}
	return false, nil
}

// noRight returns the part of the API server's message if no role grants the right.
func (g *Guard) noRight() string {
	return fmt.Sprintf("User %q cannot ", "system:serviceaccount:"+g.o.Cluster.Namespace()+":"+g.o.Release)
}

// ask sends a request as a dry run.
func (g *Guard) ask(ctx context.Context, p probe, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	r := g.client.Verb(p.verb).Namespace(g.o.Cluster.Namespace()).Resource(p.resource).Param("dryRun", metav1.DryRunAll).Body(body)
	if p.name == "" {
		r.SetHeader("Content-Type", "application/json")
	} else {
		r.Name(p.name).SetHeader("Content-Type", string(types.MergePatchType))
	}
	return r.Do(ctx).Error()
}

// refusal reports whether a code may be RBAC's or an admission's: webhooks choose their own code.
func refusal(code int32) bool {
	return code == http.StatusForbidden || code == http.StatusBadRequest || code == http.StatusUnprocessableEntity
}
