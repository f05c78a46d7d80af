package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/postern-dev/postern/control/admin"
)

// Labels of a gateway's pods. The gateway itself sets the role.
const (
	labelName     = "app.kubernetes.io/name"
	labelInstance = "app.kubernetes.io/instance"
	labelRole     = "postern.dev/role"
	nameValue     = "postern"
	roleActive    = "active"

	// container is the name of the gateway's container; in a pod without one of this name it is
	// the first.
	container = "postern"
	// listTimeout bounds the list of pods.
	listTimeout = 15 * time.Second
	// maxListed bounds the number of pods and releases in a message.
	maxListed = 4
)

// Target is the active gateway's pod.
type Target struct{ Namespace, Pod, Container string }

// Find returns the active gateway's pod. Its errors are admin.ErrNoGateway, with the reason.
func (g *Gateway) Find(ctx context.Context) (Target, error) {
	ctx, cancel := context.WithTimeout(quiet(ctx), g.limit(listTimeout))
	defer cancel()
	pods, err := g.list(ctx, labelName+"="+nameValue+","+labelInstance+"="+g.release)
	if err != nil {
		return Target{}, err
	}
	if len(pods) == 0 {
		return Target{}, g.absent(ctx)
	}
	var active []corev1.Pod
	for _, p := range pods {
		if p.Labels[labelRole] == roleActive && p.DeletionTimestamp == nil {
			active = append(active, p)
		}
	}
	switch {
	case len(active) > 1:
		return Target{}, fmt.Errorf("%w: %d pods say that they are the active one of %s: %s (one of them is taking over; try again in a moment)",
			admin.ErrNoGateway, len(active), g, names(active))
	case len(active) == 0:
		if p := g.holder(ctx, pods); p != nil {
			active = []corev1.Pod{*p}
			break
		}
		return Target{}, fmt.Errorf("%w: no pod of %s is active: %s (see %s)", admin.ErrNoGateway, g, states(pods), g.seen(pods))
	}
	p := active[0]
	if state := notRunning(&p); state != "" {
		return Target{}, fmt.Errorf("%w: the pod of %s does not run: %s (see %s)", admin.ErrNoGateway, g, state, g.seen(active))
	}
	return Target{Namespace: p.Namespace, Pod: p.Name, Container: containerOf(&p)}, nil
}

// holder returns the running pod that holds the release's lease, which is active though it has no
// label; nil if there is none, or it is not known.
func (g *Gateway) holder(ctx context.Context, pods []corev1.Pod) *corev1.Pod {
	var lease struct {
		Spec struct {
			HolderIdentity string `json:"holderIdentity"`
		} `json:"spec"`
	}
	if !g.read(ctx, &lease, "/apis/coordination.k8s.io/v1/namespaces", "leases", g.release) {
		return nil
	}
	for i, p := range pods {
		if lease.Spec.HolderIdentity == p.Name+"_"+string(p.UID) && p.DeletionTimestamp == nil && notRunning(&p) == "" {
			return &pods[i]
		}
	}
	return nil
}

// read reads what helps to say more, and reports whether it could.
func (g *Gateway) read(ctx context.Context, into any, version, resource, name string, params ...[2]string) bool {
	r := g.client.Get().AbsPath(version, g.namespace, resource, name)
	for _, p := range params {
		r = r.Param(p[0], p[1])
	}
	raw, err := r.DoRaw(ctx)
	return err == nil && json.Unmarshal(raw, into) == nil
}

// seen returns the command that shows why pods are as they are.
func (g *Gateway) seen(pods []corev1.Pod) string {
	running := true
	for _, p := range pods {
		if ended(&p) != nil {
			return fmt.Sprintf("kubectl -n %s logs %s --previous", g.namespace, p.Name)
		}
		running = running && notRunning(&p) == ""
	}
	if running {
		return fmt.Sprintf("kubectl -n %s logs %s", g.namespace, pods[0].Name)
	}
	return fmt.Sprintf("kubectl -n %s describe pod -l %s=%s", g.namespace, labelInstance, g.release)
}

// ended returns how the container last ended, if it is not running again.
func ended(p *corev1.Pod) *corev1.ContainerStateTerminated {
	for _, c := range p.Status.ContainerStatuses {
		if c.Name == containerOf(p) && c.State.Running == nil {
			return cmp.Or(c.State.Terminated, c.LastTerminationState.Terminated)
		}
	}
	return nil
}

func (g *Gateway) list(ctx context.Context, selector string) ([]corev1.Pod, error) {
	var out corev1.PodList
	err := g.client.Get().Namespace(g.namespace).Resource("pods").Param("labelSelector", selector).Do(ctx).Into(&out)
	if err != nil {
		return nil, g.refused("list pods", err)
	}
	slices.SortFunc(out.Items, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return out.Items, nil
}

// absent returns an error that says what exists instead of a pod of the release.
func (g *Gateway) absent(ctx context.Context) error {
	others, err := g.list(ctx, labelName+"="+nameValue)
	if err != nil {
		return err
	}
	var releases []string
	for _, p := range others {
		if r := p.Labels[labelInstance]; r != "" && !slices.Contains(releases, r) {
			releases = append(releases, r)
		}
	}
	if why := g.podless(ctx); why != "" {
		return fmt.Errorf("%w: %s has no pod: %s", admin.ErrNoGateway, g, why)
	}
	if len(releases) == 0 {
		return fmt.Errorf("%w: there is no gateway of %s (choose the namespace with -n; kubectl get pods -A -l %s=%s finds gateways)",
			admin.ErrNoGateway, g, labelName, nameValue)
	}
	return fmt.Errorf("%w: there is no gateway of %s, but of %s (choose one with --release)", admin.ErrNoGateway, g, some(releases))
}

// podless returns why a release's StatefulSet has no pod; empty if there is none, or it cannot be read.
func (g *Gateway) podless(ctx context.Context) string {
	var sets struct {
		Items []struct {
			Metadata metav1.ObjectMeta `json:"metadata"`
			Spec     struct {
				Replicas *int32 `json:"replicas"`
			} `json:"spec"`
		} `json:"items"`
	}
	if !g.read(ctx, &sets, "/apis/apps/v1/namespaces", "statefulsets", "", [2]string{"labelSelector", labelName + "=" + nameValue + "," + labelInstance + "=" + g.release}) || len(sets.Items) == 0 {
		return ""
	}
	set := sets.Items[0]
	name := set.Metadata.Name
	if n := set.Spec.Replicas; n != nil && *n == 0 {
		return fmt.Sprintf("its StatefulSet is scaled to 0 replicas (kubectl -n %s scale statefulset %s --replicas=1)", g.namespace, name)
	}
	type event struct {
		Message       string `json:"message"`
		LastTimestamp string `json:"lastTimestamp"`
	}
	var events struct {
		Items []event `json:"items"`
	}
	why := "its StatefulSet has not created one"
	if g.read(ctx, &events, "/api/v1/namespaces", "events", "", [2]string{"fieldSelector", "involvedObject.kind=StatefulSet,reason=FailedCreate,involvedObject.name=" + name}) && len(events.Items) > 0 {
		why = "its StatefulSet cannot create one: " + short(slices.MaxFunc(events.Items, func(a, b event) int { return strings.Compare(a.LastTimestamp, b.LastTimestamp) }).Message)
	}
	return fmt.Sprintf("%s (see kubectl -n %s describe statefulset %s)", why, g.namespace, name)
}

// refused adds advice to a failed request to the API server.
func (g *Gateway) refused(what string, err error) error {
	var status apierrors.APIStatus
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%w: the API server at %s does not know this user: %w (renew the credentials in the kubeconfig)", admin.ErrNoGateway, g.config.Host, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w: this user may not %s in namespace %q: %w (it takes get and list of pods and create of pods/exec there; choose the namespace with -n)",
			admin.ErrNoGateway, what, g.namespace, err)
	case errors.As(err, &status):
		return fmt.Errorf("%w: the API server at %s refused to %s: %w", admin.ErrNoGateway, g.config.Host, what, err)
	}
	return fmt.Errorf("%w: the API server at %s cannot be asked: %w (see that kubectl get pods -n %s works)", admin.ErrNoGateway, g.config.Host, oneLine(err), g.namespace)
}

// containerOf returns the name of the gateway's container.
func containerOf(p *corev1.Pod) string {
	for _, c := range p.Spec.Containers {
		if c.Name == container {
			return c.Name
		}
	}
	if len(p.Spec.Containers) == 0 {
		return ""
	}
	return p.Spec.Containers[0].Name
}

// notRunning returns what a pod does instead of running; empty if it runs.
func notRunning(p *corev1.Pod) string {
	name := containerOf(p)
	for _, c := range p.Status.ContainerStatuses {
		switch {
		case c.Name != name:
		case c.State.Running != nil:
			return ""
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			state := describe(p, c.State.Waiting.Reason, c.State.Waiting.Message)
			if last := c.LastTerminationState.Terminated; last != nil {
				state += "; " + ending(last)
			}
			return state
		case c.State.Terminated != nil:
			return describe(p, ending(c.State.Terminated), c.State.Terminated.Message)
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return describe(p, c.Reason, c.Message)
		}
	}
	return describe(p, string(p.Status.Phase), p.Status.Message)
}

// ending returns how a container ended: by the kernel or the kubelet, or by itself.
func ending(t *corev1.ContainerStateTerminated) string {
	text := fmt.Sprintf("it ended with exit code %d", t.ExitCode)
	if t.Reason != "" && t.Reason != "Error" && t.Reason != "Completed" {
		text += " (" + short(t.Reason) + ")"
	}
	return text
}

// maxReason bounds the cluster's text about a pod, in bytes.
const maxReason = 200

func describe(p *corev1.Pod, reason, message string) string {
	if message = short(message); message != "" {
		reason += ": " + message
	}
	return p.Name + ": " + reason
}

// short returns the cluster's text in one line, bounded.
func short(text string) string {
	if text = strings.Join(strings.Fields(text), " "); len(text) > maxReason {
		text = strings.ToValidUTF8(text[:maxReason], "") + "…"
	}
	return text
}

// states returns the state of each pod that is not the active one.
func states(pods []corev1.Pod) string {
	var out []string
	for _, p := range pods {
		switch state := notRunning(&p); {
		case p.DeletionTimestamp != nil:
			out = append(out, p.Name+": is being stopped")
		case state != "":
			out = append(out, state)
		default:
			out = append(out, p.Name+": runs and stands by")
		}
	}
	return some(out)
}

func names(pods []corev1.Pod) string {
	var out []string
	for _, p := range pods {
		out = append(out, p.Name)
	}
	return some(out)
}

// some returns the first of many.
func some(list []string) string {
	if more := len(list) - maxListed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:maxListed], ", "), more)
	}
	return strings.Join(list, ", ")
}
