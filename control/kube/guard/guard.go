package guard

import (
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

	// holds is how long a good answer is believed. askAgain is the pause after there was none, or
	// a bad one, which is told when the next is bad too: where a policy is installed with the
	// gateway the API server takes a moment to notice it.
	holds    = 10 * time.Minute
	askAgain = 15 * time.Second
	// requestTimeout bounds one request.
	requestTimeout = 5 * time.Second
)

// Options of a [Guard]. Cluster, Release, Pod and OnProblems are required.
type Options struct {
	Cluster *kube.Cluster
	// Release is the name of the gateway's account.
	Release string
	// Pod is the name of the gateway's own.
	Pod string
	// OnProblems is called by Run when what is wrong has changed.
	OnProblems func([]check.OwnProblem)
	// Logger may be nil.
	Logger *slog.Logger
}

// Guard asks from time to time while [Guard.Run] runs.
type Guard struct {
	o      Options
	client rest.Interface
	again  time.Duration // askAgain
}

// New makes a guard. Nothing is asked yet.
func New(o Options) (*Guard, error) {
	client, err := o.Cluster.Group(corev1.SchemeGroupVersion)
	if err != nil {
		return nil, fmt.Errorf("guard: %w", err)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Guard{o: o, client: client, again: askAgain}, nil
}

// Run asks until ctx ends.
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
		if err != nil { // what was told stays
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

// probe is a request that must be refused, and what it would be good for.
type probe struct {
	means string
	verb  string
	// resource and name are what the request is for; a new object has no name there.
	resource, name string
	body           any
	// harmless differs from body in what must not be, and in nothing else: the gateway does such.
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

// Admitted says what the account could do that it must not. With an error there is nothing that it is
// known to be able to do, and something of which that is unknown.
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

// admits reports whether the API server would do what p asks for. A refusal counts when it is for
// what must not be: a quota or someone's webhook may refuse the harmless request too.
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

// noRight is in what the API server answers when no role gives the account a right.
func (g *Guard) noRight() string {
	return fmt.Sprintf("User %q cannot ", "system:serviceaccount:"+g.o.Cluster.Namespace()+":"+g.o.Release)
}

// ask makes a request that changes nothing.
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

// refusal tells the answers of RBAC and of admission: webhooks choose their code.
func refusal(code int32) bool {
	return code == http.StatusForbidden || code == http.StatusBadRequest || code == http.StatusUnprocessableEntity
}
