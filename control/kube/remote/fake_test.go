package remote

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// The channels of an exec over WebSocket (v5.channel.k8s.io): the first byte of a message.
const (
	channelStdin  = 0
	channelStdout = 1
	channelStderr = 2
	channelError  = 3
	channelClose  = 255
)

// fakeCluster is an API server with pods that run a program on exec.
type fakeCluster struct {
	pods []corev1.Pod
	// others are answers to other requests, in JSON, by the end of the path.
	others map[string]string
	// program runs in the pod, with its streams, and returns its exit code.
	program func(stdin io.Reader, stdout, stderr io.Writer) int
	// noWebSockets: exec only supports SPDY. refuse answers every exec with a status.
	noWebSockets bool
	refuse       *metav1.Status
	refuseList   *metav1.Status

	mu      sync.Mutex
	execs   []string // method, path and query of each
	running sync.WaitGroup
}

func (f *fakeCluster) start(t *testing.T) *Gateway {
	t.Helper()
	server := httptest.NewServer(f)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		f.running.Wait()
	})
	g, err := newGateway(&rest.Config{Host: server.URL}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	g.namespace, g.context = "edge", "kind-edge"
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		g.client.(*rest.RESTClient).Client.CloseIdleConnections()
	})
	return g
}

func (f *fakeCluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.HasSuffix(r.URL.Path, "/exec") {
		if f.refuseList != nil {
			f.status(w, *f.refuseList)
			return
		}
		for path, answer := range f.others {
			if strings.HasSuffix(r.URL.Path, path) {
				_, _ = io.WriteString(w, answer)
				return
			}
		}
		f.list(w, r)
		return
	}
	f.mu.Lock()
	f.execs = append(f.execs, r.Method+" "+r.URL.RequestURI())
	f.mu.Unlock()
	upgrade := strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
	switch {
	case f.refuse != nil:
		f.status(w, *f.refuse)
	case upgrade && f.noWebSockets:
		http.Error(w, "unable to upgrade: not websocket here", http.StatusBadRequest)
	case upgrade:
		s := websocket.Server{Handler: f.bySocket, Handshake: func(c *websocket.Config, _ *http.Request) error {
			c.Protocol = []string{"v5.channel.k8s.io"}
			return nil
		}}
		s.ServeHTTP(w, r)
	default:
		f.bySPDY(w, r)
	}
}

func (f *fakeCluster) list(w http.ResponseWriter, r *http.Request) {
	out := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
	for _, p := range f.pods {
		fits := "/api/v1/namespaces/"+p.Namespace+"/pods" == r.URL.Path
		for want := range strings.SplitSeq(r.URL.Query().Get("labelSelector"), ",") {
			key, value, _ := strings.Cut(want, "=")
			fits = fits && p.Labels[key] == value
		}
		if fits {
			out.Items = append(out.Items, p)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out)
}

func (f *fakeCluster) status(w http.ResponseWriter, s metav1.Status) {
	s.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(s.Code))
	_ = json.NewEncoder(w).Encode(s)
}

// channel writes to one channel of a WebSocket.
type channel struct {
	mu *sync.Mutex
	ws *websocket.Conn
	id byte
}

func (c channel) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := websocket.Message.Send(c.ws, append([]byte{c.id}, b...)); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (f *fakeCluster) bySocket(ws *websocket.Conn) {
	stdin, feed := io.Pipe()
	f.running.Add(1)
	go func() {
		defer f.running.Done()
		for {
			var message []byte
			if err := websocket.Message.Receive(ws, &message); err != nil {
				_ = feed.CloseWithError(io.EOF)
				return
			}
			switch {
			case len(message) == 2 && message[0] == channelClose:
				_ = feed.CloseWithError(io.EOF)
			case len(message) > 1 && message[0] == channelStdin:
				_, _ = feed.Write(message[1:])
			}
		}
	}()
	mu := new(sync.Mutex)
	code := f.program(stdin, channel{mu, ws, channelStdout}, channel{mu, ws, channelStderr})
	_ = stdin.Close()
	_ = json.NewEncoder(channel{mu, ws, channelError}).Encode(exitStatus(code))
	mu.Lock()
	defer mu.Unlock()
	_ = ws.WriteClose(1000)
}

func (f *fakeCluster) bySPDY(w http.ResponseWriter, r *http.Request) {
	if _, err := httpstream.Handshake(r, w, []string{"v4.channel.k8s.io"}); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	arrived := make(chan httpstream.Stream, 8)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
		arrived <- s
		return nil
	})
	if conn == nil {
		return
	}
	defer conn.Close()
	streams := map[string]httpstream.Stream{}
	for len(streams) < 4 {
		select {
		case s := <-arrived:
			streams[s.Headers().Get(corev1.StreamType)] = s
		case <-conn.CloseChan():
			return
		}
	}
	code := f.program(streams[corev1.StreamTypeStdin], streams[corev1.StreamTypeStdout], streams[corev1.StreamTypeStderr])
	_ = json.NewEncoder(streams[corev1.StreamTypeError]).Encode(exitStatus(code))
	for _, s := range streams {
		_ = s.Close()
	}
	<-conn.CloseChan()
}

func exitStatus(code int) metav1.Status {
	if code == 0 {
		return metav1.Status{Status: metav1.StatusSuccess}
	}
	return metav1.Status{Status: metav1.StatusFailure, Reason: "NonZeroExitCode", Details: &metav1.StatusDetails{
		Causes: []metav1.StatusCause{{Type: "ExitCode", Message: string(rune('0' + code))}},
	}}
}

// stdio is `postern admin-stdio` in a pod whose gateway listens on socket.
func stdio(socket string) func(io.Reader, io.Writer, io.Writer) int {
	return func(stdin io.Reader, stdout, stderr io.Writer) int {
		conn, err := new(net.Dialer).DialContext(context.Background(), "unix", socket)
		if err != nil {
			_, _ = io.WriteString(stderr, "postern: no gateway answers on "+socket+": connection refused\n")
			return 3
		}
		defer conn.Close()
		_, _ = io.WriteString(stdout, Greeting)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = io.Copy(conn, stdin)
			conn.Close()
		}()
		_, _ = io.Copy(stdout, conn)
		if c, ok := stdin.(io.Closer); ok {
			_ = c.Close()
		}
		<-ended
		return 0
	}
}

// gatewayPod returns a running pod of release postern in namespace edge.
func gatewayPod(name, role string) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "edge", Labels: map[string]string{
		labelName: nameValue, labelInstance: DefaultRelease,
	}}}
	if role != "" {
		p.Labels[labelRole] = role
	}
	p.Spec.Containers = []corev1.Container{{Name: "sidecar"}, {Name: container}}
	p.Status.Phase = corev1.PodRunning
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: container, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	return p
}
