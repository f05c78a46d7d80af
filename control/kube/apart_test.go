package kube

import (
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
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
