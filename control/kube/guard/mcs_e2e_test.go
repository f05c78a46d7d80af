//go:build linux && e2e

package guard

import (
	"net/http"
	"testing"

	"sigs.k8s.io/mcs-api/config/crd"
)

const (
	tenantSlices = "/apis/discovery.k8s.io/v1/namespaces/tenant/endpointslices"
	tenantMCS    = "/apis/multicluster.x-k8s.io/v1beta1/namespaces/tenant/"

	// imported are the labels of the gateway's objects for imports.
	imported = `app.kubernetes.io/name: postern, app.kubernetes.io/instance: postern, app.kubernetes.io/managed-by: postern`
)

func derived(name, labels, more string) string {
	return `apiVersion: v1, kind: Service, metadata: {name: ` + name + `, labels: {` + labels + `}}, spec: {ports: [{port: 80}], ` + more + `}`
}

func endpoints(name, labels string) string {
	return `apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: ` + name + `, labels: {` + labels + `}}, addressType: IPv4, endpoints: [{addresses: [10.244.0.9]}]`
}

func serviceImport(labels string) string {
	return `apiVersion: multicluster.x-k8s.io/v1beta1, kind: ServiceImport, metadata: {name: web, labels: {` + labels + `}}, spec: {type: Headless, ports: []}`
}

// onServices are requests about services of clusters for which a stolen token must be useless,
// and the gateway's own ones.
func onServices() []attempt {
	const managed = imported + `, endpointslice.kubernetes.io/managed-by: postern`
	return []attempt{
		{"a Service of an import", apply(tenants+"services/derived-a", derived("derived-a", imported, "type: ClusterIP")), nobody},
		{"endpoints of an import", apply(tenantSlices+"/derived-a-b-0", endpoints("derived-a-b-0", managed+", kubernetes.io/service-name: derived-a")), nobody},
		{"endpoints for DNS", apply(tenantSlices+"/derived-a-b-0", endpoints("derived-a-b-0", managed)), nobody},
		{"an import", apply(tenantMCS+"serviceimports/web", serviceImport(imported)), nobody},
		{"what is exported", read(tenantMCS + "serviceexports"), nobody},
		{"the Role that owns it all", read(rbacAPI + "namespaces/tenant/roles/postern-postern-mcs"), nobody},

		{"a Service of a user's name", create(tenants+"services", derived("up", imported, "type: ClusterIP")), byPolicy},
		{"a Service without labels", create(tenants+"services", derived("derived-a", "a: b", "type: ClusterIP")), byPolicy},
		{"a Service of an import that selects pods", create(tenants+"services", derived("derived-a", imported, "selector: {app: web}")), byPolicy},
		{"a Service of an import with an external address", create(tenants+"services", derived("derived-a", imported, "externalIPs: [203.0.113.8]")), byPolicy},
		{"a Service of an import open to the world", create(tenants+"services", derived("derived-a", imported, "type: NodePort")), byPolicy},
		{"a Service of an import that is an alias", create(tenants+"services", derived("derived-a", imported, "type: ExternalName, externalName: example.com")), byPolicy},
		{"a user's Service", patch(tenants+"services/web", `{"spec":{"selector":{"app":"up"}}}`), byPolicy},
		{"deleting a user's Service", remove(tenants + "services/web"), byPolicy},
		{"endpoints of a user's Service", create(tenantSlices, endpoints("derived-a-b-0", managed+", kubernetes.io/service-name: web")), byPolicy},
		{"endpoints that another controller would manage", create(tenantSlices, endpoints("derived-a-b-0", imported+", endpointslice.kubernetes.io/managed-by: endpointslice-controller.k8s.io")), byPolicy},
		{"endpoints of any name", create(tenantSlices, endpoints("web-1", managed)), byPolicy},
		{"an import of somebody else", create(tenantMCS+"serviceimports", serviceImport("a: b")), byPolicy},
		{"an export", create(tenantMCS+"serviceexports", `apiVersion: multicluster.x-k8s.io/v1beta1, kind: ServiceExport, metadata: {name: web}`), byRBAC},
		{"another Role of the namespace", read(rbacAPI + "namespaces/tenant/roles"), byRBAC},
		{"Secrets where services are imported", read(tenants + "secrets"), byRBAC},
		{"pods where services are imported", read(tenants + "pods"), byRBAC},
		{"a Service in a namespace that is not named", create("/api/v1/namespaces/default/services", derived("derived-a", imported, "type: ClusterIP")), byRBAC},
		{"an import into kube-system", create("/apis/multicluster.x-k8s.io/v1beta1/namespaces/kube-system/serviceimports", serviceImport(imported)), byRBAC},
	}
}

// testServicesOfClusters: the right is granted only in the named namespaces, or in all, and only
// covers what imports need.
func testServicesOfClusters(t *testing.T, w *world) {
	for _, text := range [][]byte{crd.ServiceExportCRD, crd.ServiceImportCRD} {
		w.kubectl(t, string(text), "apply", "--server-side", "-f", "-")
	}
	w.kubectl(t, "", "wait", "--for=condition=Established", "--timeout=60s", "crd/serviceexports.multicluster.x-k8s.io", "crd/serviceimports.multicluster.x-k8s.io")
	exports := func(path string) {
		eventually(t, "exports are listed", func() (bool, string) {
			status, body := w.ask(t, read(path), false)
			return status == http.StatusOK, body
		})
	}
	w.install(t, "mcs.enabled=true", "mcs.namespaces={tenant}")
	exports(tenantMCS + "serviceexports")
	play(t, w, onServices())
	rightsAre(t, w, namedFile, "tenant", "default")
	w.install(t, "mcs.enabled=true", "mcs.allNamespaces=true")
	exports("/apis/multicluster.x-k8s.io/v1beta1/serviceexports")
	rightsAre(t, w, allFile, "default")
	w.install(t)
	eventually(t, "nothing is left of the rights", func() (bool, string) {
		status, body := w.ask(t, read(tenantMCS+"serviceexports"), false)
		return status == http.StatusForbidden, body
	})
}
