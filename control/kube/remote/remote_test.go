package remote

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"go.uber.org/goleak"

	"github.com/postern-dev/postern/control/admin"
	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/testenv/patience"
)

// After a broken WebSocket client-go leaves the heartbeat, which ends with its next ping, and
// readers of streams that nobody closes. They are not ours, and do not matter for a command that
// ends.
func TestMain(m *testing.M) {
	var left []goleak.Option
	for _, f := range []string{"(*heartbeat).start", "(*stream).Read", "(*streamProtocolV4).stream", "watchErrorStream.func1"} {
		left = append(left, goleak.IgnoreAnyFunction("k8s.io/client-go/tools/remotecommand."+f))
	}
	goleak.VerifyTestMain(m, left...)
}

// backend is a gateway with only a status.
type backend struct{ admin.Backend }

func (backend) Status(context.Context) (api.Status, error) {
	return api.Status{Gateway: api.GatewayStatus{Name: strings.Repeat("edge", 10000)}}, nil
}

// adminSocket returns a gateway's admin socket.
func adminSocket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "r") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s, err := admin.Listen(admin.ServerOptions{Socket: filepath.Join(dir, "s"), Backend: backend{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s.Socket()
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience.Left())
	t.Cleanup(cancel)
	return ctx
}

func TestManyRequestsGoThroughOneExec(t *testing.T) {
	for _, by := range []struct {
		name         string
		noWebSockets bool
		last         string
	}{
		{"WebSocket", false, "GET"},
		{"SPDY where WebSockets do not pass", true, "POST"},
	} {
		t.Run(by.name, func(t *testing.T) {
			cluster := &fakeCluster{
				pods:    []corev1.Pod{gatewayPod("postern-0", ""), gatewayPod("postern-1", roleActive)},
				program: stdio(adminSocket(t)), noWebSockets: by.noWebSockets,
			}
			g := cluster.start(t)
			client := admin.NewClientVia("edge", g.Dial)
			defer client.Close()
			for range 5 {
				s, err := client.Status(within(t))
				if err != nil || len(s.Gateway.Name) != 40000 {
					t.Fatalf("got %d bytes, %v", len(s.Gateway.Name), err)
				}
			}
			cluster.mu.Lock()
			defer cluster.mu.Unlock()
			last := cluster.execs[len(cluster.execs)-1]
			want := by.last + " /api/v1/namespaces/edge/pods/postern-1/exec?command=%2Fpostern&command=admin-stdio&container=postern&stderr=true&stdin=true&stdout=true"
			if last != want {
				t.Errorf("exec was %s\nwant     %s", last, want)
			}
			if n := len(cluster.execs); n > 2 || !by.noWebSockets && n > 1 {
				t.Errorf("%d execs: %v", n, cluster.execs)
			}
		})
	}
}

func TestWhyThereIsNoGateway(t *testing.T) {
	crashing := gatewayPod("postern-0", "")
	crashing.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 20s\nrestarting"}}
	pending := gatewayPod("postern-0", "")
	pending.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/1 nodes are available",
	}}}
	stopping := gatewayPod("postern-0", roleActive)
	stopping.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	activeCrashed := gatewayPod("postern-0", roleActive)
	activeCrashed.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 2}}
	killed := gatewayPod("postern-0", "")
	killed.Status.ContainerStatuses[0].State = crashing.Status.ContainerStatuses[0].State
	killed.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}
	set := func(replicas string) string {
		return `{"items": [{"metadata": {"name": "postern"}, "spec": {"replicas": ` + replicas + `}}]}`
	}
	other := gatewayPod("postern-0", roleActive)
	other.Labels[labelInstance] = "west"
	elsewhere := gatewayPod("postern-0", roleActive)
	elsewhere.Namespace = "other"
	forbidden := &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
		Message: `pods is forbidden: User "jane" cannot list resource "pods"`}
	running := []corev1.Pod{gatewayPod("postern-0", roleActive)}
	fails := func(text string, code int) func(io.Reader, io.Writer, io.Writer) int {
		return func(_ io.Reader, stdout, stderr io.Writer) int {
			_, _ = io.WriteString(stderr, text)
			return code
		}
	}
	for _, c := range []struct {
		name    string
		cluster *fakeCluster
		want    []string
	}{
		{"nothing is there", &fakeCluster{pods: []corev1.Pod{elsewhere}},
			[]string{`there is no gateway of release "postern" in namespace "edge" of context "kind-edge"`, "choose the namespace with -n"}},
		{"another release", &fakeCluster{pods: []corev1.Pod{other}}, []string{"but of west (choose one with --release)"}},
		{"it crashes", &fakeCluster{pods: []corev1.Pod{crashing}}, []string{"postern-0: CrashLoopBackOff: back-off 20s restarting", "kubectl -n edge describe pod"}},
		{"its memory is too small", &fakeCluster{pods: []corev1.Pod{killed}}, []string{"it ended with exit code 137 (OOMKilled)", "kubectl -n edge logs postern-0 --previous"}},
		{"it is scaled down", &fakeCluster{others: map[string]string{"/statefulsets": set("0")}}, []string{"scaled to 0 replicas", "kubectl -n edge scale statefulset postern --replicas=1"}},
		{"its pods are refused", &fakeCluster{others: map[string]string{"/statefulsets": set("1"), "/events": `{"items": [{"message": "create Pod postern-0 in StatefulSet postern failed error: pods \"postern-0\" is forbidden: exceeded quota: small", "lastTimestamp": "2026-03-01T12:00:00Z"}, {"message": "an earlier one", "lastTimestamp": "2026-03-01T11:00:00Z"}]}`}},
			[]string{"cannot create one: create Pod postern-0", "exceeded quota: small", "describe statefulset postern"}},
		{"it finds no node", &fakeCluster{pods: []corev1.Pod{pending}}, []string{"Unschedulable: 0/1 nodes are available"}},
		{"it is being stopped", &fakeCluster{pods: []corev1.Pod{stopping}}, []string{"is being stopped"}},
		{"the active one ended", &fakeCluster{pods: []corev1.Pod{activeCrashed}}, []string{"it ended with exit code 2"}},
		{"all stand by", &fakeCluster{pods: []corev1.Pod{gatewayPod("postern-0", "")}}, []string{"postern-0: runs and stands by", "see kubectl -n edge logs postern-0)"}},
		{"another has the lease", &fakeCluster{pods: []corev1.Pod{gatewayPod("postern-0", "")}, others: map[string]string{"/leases/postern": `{"spec": {"holderIdentity": "postern-0_earlier"}}`}}, []string{"runs and stands by"}},
		{"the active one is not labelled", &fakeCluster{pods: []corev1.Pod{gatewayPod("postern-0", "")}, others: map[string]string{"/leases/postern": `{"spec": {"holderIdentity": "postern-0_"}}`}, program: fails("it was asked\n", 3)},
			[]string{"in pod postern-0: it was asked"}},
		{"two are active", &fakeCluster{pods: []corev1.Pod{gatewayPod("postern-0", roleActive), gatewayPod("postern-1", roleActive)}},
			[]string{"2 pods say that they are the active one", "postern-0, postern-1"}},
		{"pods are not to be listed", &fakeCluster{refuseList: forbidden}, []string{"this user may not list pods", "jane", "create of pods/exec"}},
		{"exec is not allowed", &fakeCluster{pods: running, refuse: &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusForbidden,
			Reason: metav1.StatusReasonForbidden, Message: `pods "postern-0" is forbidden: User "jane" cannot create resource "pods/exec"`}},
			[]string{"this user may not run a program in a pod", `"pods/exec"`, "kubectl create role postern-admin -n edge"}},
		{"no gateway in the pod", &fakeCluster{pods: running, program: fails("postern: no gateway answers on /run/postern/postern.sock: no such file\n", 3)},
			[]string{"in pod postern-0: no gateway answers on /run/postern/postern.sock: no such file"}},
		{"a program without words", &fakeCluster{pods: running, program: fails("", 7)}, []string{"/postern admin-stdio ended with exit code 7"}},
		{"an older image", &fakeCluster{pods: running, program: func(_ io.Reader, stdout, _ io.Writer) int {
			_, _ = io.WriteString(stdout, "postern admin-stdio 2\n")
			return 0
		}}, []string{"another version of postern"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := admin.NewClientVia("edge", c.cluster.start(t).Dial)
			defer client.Close()
			_, err := client.Status(within(t))
			if !errors.Is(err, admin.ErrNoGateway) {
				t.Fatalf("got %v, want ErrNoGateway", err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %q, want %q in it", err, want)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q has several lines", err)
			}
		})
	}
}

func TestAnEndedExecIsAnError(t *testing.T) {
	end := make(chan struct{})
	cluster := &fakeCluster{pods: []corev1.Pod{gatewayPod("postern-0", roleActive)}, program: func(_ io.Reader, stdout, stderr io.Writer) int {
		_, _ = io.WriteString(stdout, Greeting)
		<-end
		return 9
	}}
	conn, err := cluster.start(t).Dial(within(t))
	if err != nil {
		t.Fatal(err)
	}
	close(end)
	_, err = conn.Read(make([]byte, 1))
	if err == nil || !strings.Contains(err.Error(), "through pod postern-0 ended") {
		t.Errorf("got %v", err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
}

// A cancelled request must not wait until the program has started.
func TestAbandonedDialEndsTheExec(t *testing.T) {
	started, ended := make(chan struct{}), make(chan struct{})
	cluster := &fakeCluster{pods: []corev1.Pod{gatewayPod("postern-0", roleActive)}, program: func(stdin io.Reader, _, _ io.Writer) int {
		close(started)
		_, _ = io.Copy(io.Discard, stdin)
		close(ended)
		return 0
	}}
	g := cluster.start(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-started; cancel() }()
	if _, err := g.Dial(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that it was cancelled", err)
	}
	<-ended // the program
}

func TestClosedGatewayDialsNoMore(t *testing.T) {
	cluster := &fakeCluster{pods: []corev1.Pod{gatewayPod("postern-0", roleActive)}, program: stdio(adminSocket(t))}
	g := cluster.start(t)
	conn, err := g.Dial(within(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("GET ")); err == nil {
		t.Error("a connection survived its gateway")
	}
	if _, err := g.Dial(within(t)); err == nil {
		t.Error("a closed gateway dials")
	}
}

// --request-timeout limits a list, and the start of an exec.
func TestTheOperatorBoundsRequests(t *testing.T) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	defer theirs.Close()
	g := &Gateway{config: &rest.Config{}}
	s := &session{Conn: ours, gateway: g, target: Target{Pod: "postern-0"}}
	if got := g.limit(listTimeout); got != listTimeout {
		t.Errorf("unless told, a list may take %v, want %v", got, listTimeout)
	}
	g.config.Timeout = time.Millisecond
	if err := s.greeted(within(t)); !errors.Is(err, admin.ErrNoGateway) || !strings.Contains(err.Error(), "said nothing within 1ms") {
		t.Errorf("got %v", err)
	}
	if got := g.limit(listTimeout); got != g.config.Timeout {
		t.Errorf("a list may take %v, want %v", got, g.config.Timeout)
	}
}
