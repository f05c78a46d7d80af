package kube

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

func TestConnectionsApartAreDroppedWhenTold(t *testing.T) {
	var connections atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"apiVersion":"v1","kind":"ServiceAccount"}`))
	}))
	server.EnableHTTP2 = true
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	server.StartTLS()
	defer server.Close()
	c, err := newCluster(&rest.Config{Host: server.URL, BearerToken: "t", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, "default")
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	client, err := c.Apart().Group(corev1.SchemeGroupVersion, &corev1.ServiceAccount{})
	if err != nil {
		t.Fatal(err)
	}
	defer Redial(client)
	ask := func() {
		t.Helper()
		var out corev1.ServiceAccount
		if err := client.Get().Namespace("default").Resource("serviceaccounts").Name("x").Do(t.Context()).Into(&out); err != nil {
			t.Fatal(err)
		}
	}
	for step, want := range []int32{1, 1, 2} {
		if step == 2 {
			Redial(client)
		}
		if ask(); connections.Load() != want {
			t.Errorf("after request %d: %d connections, want %d", step, connections.Load(), want)
		}
	}
}

// Objects of Kubernetes' own kinds can be read as protobuf; clients of JSON still get JSON.
func TestProtobufIsForWhoAsksForIt(t *testing.T) {
	var accepted atomic.Value
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		accepted.Store(r.Header.Get("Accept"))
		w.WriteHeader(http.StatusNotFound)
	}))
	defer server.Close()
	c, err := newCluster(&rest.Config{Host: server.URL}, "default")
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	for _, x := range []struct {
		cluster *Cluster
		want    string
	}{{c.WithProtobuf(), runtime.ContentTypeProtobuf}, {c, runtime.ContentTypeJSON}} {
		client, err := x.cluster.Group(corev1.SchemeGroupVersion, &corev1.Service{})
		if err != nil {
			t.Fatal(err)
		}
		_ = client.Get().Namespace("default").Resource("services").Name("x").Do(t.Context())
		if got, _ := accepted.Load().(string); !strings.HasPrefix(got, x.want) {
			t.Errorf("it accepts %q, want %q", got, x.want)
		}
	}
}
