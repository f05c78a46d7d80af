//go:build linux && e2e

package guard

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// Who refuses a request.
const (
	byRBAC   = "rbac"
	byPolicy = "policy"
	nobody   = ""
)

// request is a request to the API server. Bodies are YAML in flow style.
type request struct {
	method, path, mediaType, body string
	// as are impersonation headers.
	as map[string]string
}

func read(path string) request { return request{method: http.MethodGet, path: path} }

func remove(path string) request {
	return request{method: http.MethodDelete, path: path + "?dryRun=All"}
}

func create(path, body string) request {
	return request{method: http.MethodPost, path: path + "?dryRun=All", mediaType: "application/yaml", body: "{" + body + "}"}
}

func patch(path, body string) request {
	return request{method: http.MethodPatch, path: path + "?dryRun=All", mediaType: "application/merge-patch+json", body: body}
}

// apply is a server-side apply, by which the gateway writes its objects for peers.
func apply(path, body string) request {
	return request{method: http.MethodPatch, path: path + "?dryRun=All&force=true&fieldManager=postern", mediaType: "application/apply-patch+yaml", body: "{" + body + "}"}
}

func as(header, value string) request {
	r := read("/api/v1/namespaces")
	r.as = map[string]string{header: value}
	if header != "Impersonate-User" {
		r.as["Impersonate-User"] = "anybody"
	}
	return r
}

// attempt is something that the holder of the gateway's token may try, and who refuses it.
type attempt struct {
	name string
	request
	by string
}

const (
	ours     = "/api/v1/namespaces/postern/"
	peers    = "/api/v1/namespaces/postern-peers/"
	tenants  = "/api/v1/namespaces/tenant/"
	system   = "/api/v1/namespaces/kube-system/"
	rbacAPI  = "/apis/rbac.authorization.k8s.io/v1/"
	ownPod   = ours + "pods/postern-0"
	admitAPI = "/apis/admissionregistration.k8s.io/v1/"
	policies = "/apis/networking.k8s.io/v1/namespaces/postern/networkpolicies"
	leases   = "/apis/coordination.k8s.io/v1/namespaces/postern/leases"

	// marks are the labels of the gateway's objects for peer cloud.
	marks    = `labels: {app.kubernetes.io/name: postern, app.kubernetes.io/instance: postern, app.kubernetes.io/managed-by: postern, postern.dev/peer: cloud}`
	selector = `selector: {app.kubernetes.io/name: postern, app.kubernetes.io/instance: postern, postern.dev/role: active}`
)

// service returns a Service like the gateway's with one difference.
func service(name, more string) string {
	return fmt.Sprintf(`apiVersion: v1, kind: Service, metadata: {name: %s, %s}, spec: {ports: [{port: 6443}], %s}`, name, marks, more)
}

func secret(name, kind, more string) string {
	return fmt.Sprintf(`apiVersion: v1, kind: Secret, type: %s, metadata: {name: %s%s}`, kind, name, more)
}

// tokenOf returns a Secret for which a controller creates an account's token without expiry.
func tokenOf(name, account, more string) string {
	return secret(name, "kubernetes.io/service-account-token", ", annotations: {kubernetes.io/service-account.name: "+account+"}"+more)
}

func boundTo(kind, role string) string {
	return fmt.Sprintf(`apiVersion: rbac.authorization.k8s.io/v1, kind: %s, metadata: {name: up},
		roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %s}, subjects: [{kind: ServiceAccount, namespace: postern, name: postern}]`, kind, role)
}

const (
	everything  = `rules: [{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}]`
	token       = `apiVersion: authentication.k8s.io/v1, kind: TokenRequest, spec: {expirationSeconds: 600}`
	podTemplate = `{securityContext: {runAsNonRoot: true, runAsUser: 1, seccompProfile: {type: RuntimeDefault}}, serviceAccountName: mighty, restartPolicy: Never,
		containers: [{name: c, image: i, securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}]}`
	alwaysTemplate = `selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {serviceAccountName: mighty, containers: [{name: c, image: i}]}}`
	hook           = `webhooks: [{name: up.example.com, sideEffects: None, admissionReviewVersions: [v1], clientConfig: {url: "https://up.example.com"},
		rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [secrets]}]}]`
)

// attempts are requests for which a stolen token must be useless.
func attempts(csr string) []attempt {
	request := func(signer string) string {
		return fmt.Sprintf(`apiVersion: certificates.k8s.io/v1, kind: CertificateSigningRequest, metadata: {name: up}, spec: {signerName: %s, usages: [client auth], request: %s}`, signer, csr)
	}
	return []attempt{
		// Identities.
		{"a token Secret for a mighty account of its namespace", create(ours+"secrets", tokenOf("up", "mighty", "")), byPolicy},
		{"a token Secret for itself", create(ours+"secrets", tokenOf("up", "postern", "")), byPolicy},
		{"a token Secret that looks like a kubeconfig", create(ours+"secrets", tokenOf("postern-cloud-kubeconfig", "mighty", ", "+marks)), byPolicy},
		{"a token Secret that looks like a ticket", create(ours+"secrets", tokenOf("postern-ticket-a", "mighty", ", labels: {postern.dev/ticket: a}")), byPolicy},
		{"a token Secret by apply", apply(ours+"secrets/postern-state-key", `apiVersion: v1, kind: Secret, type: kubernetes.io/service-account-token, metadata: {name: postern-state-key, annotations: {kubernetes.io/service-account.name: mighty}}`), byPolicy},
		{"a token Secret in the accounts' namespace", create(peers+"secrets", tokenOf("up", "default", "")), byRBAC},
		{"a bootstrap token", create(system+"secrets", secret("bootstrap-token-abcdef", "bootstrap.kubernetes.io/token", "")), byRBAC},
		{"a token of a mighty account of its namespace", create(ours+"serviceaccounts/mighty/token", token), byRBAC},
		{"a token of its own", create(ours+"serviceaccounts/postern/token", token), byRBAC},
		{"a token of another namespace's account", create(tenants+"serviceaccounts/mighty/token", token), byRBAC},
		{"a token of a controller's account", create(system+"serviceaccounts/clusterrole-aggregation-controller/token", token), byRBAC},
		{"a token of the default account among the peers'", create(peers+"serviceaccounts/default/token", token), byPolicy},
		{"an account in another namespace", create(tenants+"serviceaccounts", `apiVersion: v1, kind: ServiceAccount, metadata: {name: up}`), byRBAC},
		{"an account of any name among the peers'", create(peers+"serviceaccounts", `apiVersion: v1, kind: ServiceAccount, metadata: {name: up}`), byPolicy},
		{"deleting an account that is no peer's", remove(peers + "serviceaccounts/default"), byPolicy},
		{"changing an account", patch(peers+"serviceaccounts/default", `{"metadata":{"labels":{"x":"y"}}}`), byRBAC},
		{"impersonating a user", as("Impersonate-User", "system:admin"), byRBAC},
		{"impersonating a group", as("Impersonate-Group", "system:masters"), byRBAC},
		{"impersonating a UID", as("Impersonate-Uid", "1"), byRBAC},
		{"impersonating a ServiceAccount", as("Impersonate-User", "system:serviceaccount:postern:mighty"), byRBAC},
		{"impersonating by extra fields", as("Impersonate-Extra-Scopes", "all"), byRBAC},
		{"a certificate of the controller manager", create("/apis/certificates.k8s.io/v1/certificatesigningrequests", request("kubernetes.io/kube-apiserver-client")), byRBAC},
		{"a certificate of a kubelet", create("/apis/certificates.k8s.io/v1/certificatesigningrequests", request("kubernetes.io/kube-apiserver-client-kubelet")), byRBAC},
		{"approving a certificate", patch("/apis/certificates.k8s.io/v1/certificatesigningrequests/theirs/approval", `{"status":{"conditions":[{"type":"Approved","status":"True","reason":"x"}]}}`), byRBAC},
		{"signing a certificate", patch("/apis/certificates.k8s.io/v1/certificatesigningrequests/theirs/status", `{"status":{"certificate":""}}`), byRBAC},

		// Rights.
		{"binding cluster-admin everywhere", create(rbacAPI+"clusterrolebindings", boundTo("ClusterRoleBinding", "cluster-admin")), byRBAC},
		{"binding cluster-admin in its namespace", create(rbacAPI+"namespaces/postern/rolebindings", boundTo("RoleBinding", "cluster-admin")), byRBAC},
		{"binding cluster-admin in the accounts' namespace", create(rbacAPI+"namespaces/postern-peers/rolebindings", boundTo("RoleBinding", "cluster-admin")), byRBAC},
		{"binding its own role elsewhere", create(rbacAPI+"namespaces/kube-system/rolebindings", boundTo("RoleBinding", "postern-postern")), byRBAC},
		{"making a Role", create(rbacAPI+"namespaces/postern/roles", `apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: up}, `+everything), byRBAC},
		{"making a ClusterRole", create(rbacAPI+"clusterroles", `apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: up}, `+everything), byRBAC},
		{"widening its Role", patch(rbacAPI+"namespaces/postern/roles/postern", `{"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}`), byRBAC},
		{"widening its ClusterRole", patch(rbacAPI+"clusterroles/postern-postern", `{"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}`), byRBAC},
		{"widening what aggregates to view", patch(rbacAPI+"clusterroles/view", `{"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}`), byRBAC},
		{"deleting its policy", remove(admitAPI + "validatingadmissionpolicies/postern-postern"), byRBAC},
		{"deleting its policy's binding", remove(admitAPI + "validatingadmissionpolicybindings/postern-postern"), byRBAC},
		{"a policy binding that only warns", patch(admitAPI+"validatingadmissionpolicybindings/postern-postern", `{"spec":{"validationActions":["Warn"]}}`), byRBAC},
		{"a webhook that changes what is made", create(admitAPI+"mutatingwebhookconfigurations", `apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, metadata: {name: up}, `+hook), byRBAC},
		{"a webhook that sees what is made", create(admitAPI+"validatingwebhookconfigurations", `apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: up}, `+hook), byRBAC},
		{"an APIService", create("/apis/apiregistration.k8s.io/v1/apiservices", `apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1.up.example.com},
			spec: {group: up.example.com, version: v1, groupPriorityMinimum: 1, versionPriority: 1, insecureSkipTLSVerify: true, service: {name: web, namespace: postern}}`), byRBAC},
		{"changing the kind Peer", patch("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/peers.postern.dev", `{"metadata":{"annotations":{"a":"b"}}}`), byRBAC},
		{"deleting the kind Peer", remove("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/peers.postern.dev"), byRBAC},

		// Workloads.
		{"a pod", create(ours+"pods", `apiVersion: v1, kind: Pod, metadata: {name: up}, spec: `+podTemplate), byRBAC},
		{"a pod elsewhere", create(tenants+"pods", `apiVersion: v1, kind: Pod, metadata: {name: up}, spec: `+strings.Replace(podTemplate, "serviceAccountName: mighty", "automountServiceAccountToken: false", 1)), byRBAC},
		{"a Job", create("/apis/batch/v1/namespaces/postern/jobs", `apiVersion: batch/v1, kind: Job, metadata: {name: up}, spec: {template: {spec: `+podTemplate+`}}`), byRBAC},
		{"a CronJob", create("/apis/batch/v1/namespaces/postern/cronjobs", `apiVersion: batch/v1, kind: CronJob, metadata: {name: up}, spec: {schedule: "* * * * *", jobTemplate: {spec: {template: {spec: `+podTemplate+`}}}}`), byRBAC},
		{"a DaemonSet", create("/apis/apps/v1/namespaces/postern/daemonsets", `apiVersion: apps/v1, kind: DaemonSet, metadata: {name: up}, spec: {`+alwaysTemplate+`}`), byRBAC},
		{"a Deployment", create("/apis/apps/v1/namespaces/postern/deployments", `apiVersion: apps/v1, kind: Deployment, metadata: {name: up}, spec: {`+alwaysTemplate+`}`), byRBAC},
		{"a StatefulSet", create("/apis/apps/v1/namespaces/postern/statefulsets", `apiVersion: apps/v1, kind: StatefulSet, metadata: {name: up}, spec: {serviceName: up, `+alwaysTemplate+`}`), byRBAC},
		{"a ReplicaSet", create("/apis/apps/v1/namespaces/postern/replicasets", `apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: up}, spec: {`+alwaysTemplate+`}`), byRBAC},
		{"its own StatefulSet", patch("/apis/apps/v1/namespaces/postern/statefulsets/postern", `{"spec":{"template":{"spec":{"serviceAccountName":"mighty"}}}}`), byRBAC},
		{"its own configuration", patch(ours+"configmaps/postern", `{"data":{"gateway.yaml":""}}`), byRBAC},
		{"the image of its pod", patch(ownPod, `{"spec":{"containers":[{"name":"postern","image":"up"}]}}`), byPolicy},
		{"annotations of its pod", patch(ownPod, `{"metadata":{"annotations":{"a":"c"}}}`), byPolicy},
		{"owners of its pod", patch(ownPod, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Service","name":"web","uid":"1"}]}}`), byPolicy},
		{"a finalizer of its pod", patch(ownPod, `{"metadata":{"finalizers":["example.com/up"]}}`), byPolicy},
		{"a label of its pod by which others' Services find it", patch(ownPod, `{"metadata":{"labels":{"app":"web"}}}`), byPolicy},
		{"a label of its pod without a value", patch(ownPod, `{"metadata":{"labels":{"istio.io/dataplane":"","app":""}}}`), byPolicy},
		{"taking its pod from its StatefulSet", patch(ownPod, `{"metadata":{"labels":{"app.kubernetes.io/name":null}}}`), byPolicy},
		{"another role", patch(ownPod, `{"metadata":{"labels":{"postern.dev/role":"up"}}}`), byPolicy},
		{"an ephemeral container in its pod", patch(ownPod+"/ephemeralcontainers", `{"spec":{"ephemeralContainers":[{"name":"up","image":"up"}]}}`), byRBAC},
		{"the status of its pod", patch(ownPod+"/status", `{"status":{"podIP":"10.0.0.1"}}`), byRBAC},
		{"deleting its pod", remove(ownPod), byRBAC},
		{"evicting a pod", create(tenants+"pods/web/eviction", `apiVersion: policy/v1, kind: Eviction, metadata: {name: web}`), byRBAC},
		{"exec", plain(http.MethodPost, tenants+"pods/web/exec?command=id&stdout=true"), byRBAC},
		{"exec in its own pod", plain(http.MethodPost, ownPod+"/exec?command=id&stdout=true"), byRBAC},
		{"attach", plain(http.MethodPost, tenants+"pods/web/attach?stdout=true"), byRBAC},
		{"port-forward", plain(http.MethodPost, tenants+"pods/web/portforward?ports=80"), byRBAC},
		{"proxy to a pod", read(tenants + "pods/web/proxy/"), byRBAC},
		{"proxy to a Service", read(tenants + "services/web/proxy/"), byRBAC},
		{"logs of others", read(tenants + "pods/web/log"), byRBAC},
		{"proxy to a kubelet", read("/api/v1/nodes/one/proxy/pods"), byRBAC},
		{"changing a node", patch("/api/v1/nodes/one", `{"metadata":{"labels":{"a":"b"}}}`), byRBAC},
		{"a node's addresses", patch("/api/v1/nodes/one/status", `{"status":{"addresses":[{"type":"ExternalIP","address":"192.0.2.1"}]}}`), byRBAC},

		// Traffic.
		{"a Service with an external address", create(ours+"services", service("postern-cloud", selector+`, externalIPs: [192.0.2.1]`)), byPolicy},
		{"a Service of type LoadBalancer", create(ours+"services", service("postern-cloud", selector+`, type: LoadBalancer`)), byPolicy},
		{"a Service with a load balancer's address", create(ours+"services", service("postern-cloud", selector+`, type: LoadBalancer, loadBalancerIP: 192.0.2.1`)), byPolicy},
		{"a Service of type NodePort", create(ours+"services", service("postern-cloud", selector+`, type: NodePort`)), byPolicy},
		{"a Service of type ExternalName", create(ours+"services", service("postern-cloud", `type: ExternalName, externalName: up.example.com`)), byPolicy},
		{"a Service that selects others' pods", create(ours+"services", service("postern-cloud", `selector: {app: web}`)), byPolicy},
		{"a Service without a selector", create(ours+"services", service("postern-cloud", `type: ClusterIP`)), byPolicy},
		{"a Service with an annotation that controllers obey", create(ours+"services", strings.Replace(service("postern-cloud", selector), "metadata: {", "metadata: {annotations: {external-dns.alpha.kubernetes.io/internal-hostname: bank.example.com}, ", 1)), byPolicy},
		{"a Service of another name", create(ours+"services", service("database", selector)), byPolicy},
		{"a Service without the gateway's labels", create(ours+"services", `apiVersion: v1, kind: Service, metadata: {name: postern-cloud}, spec: {ports: [{port: 1}], `+selector+`}`), byPolicy},
		{"a Service of another gateway", create(ours+"services", strings.Replace(service("postern-cloud", selector), "instance: postern,", "instance: another,", 1)), byPolicy},
		{"a Service by apply", apply(ours+"services/postern-cloud", service("postern-cloud", selector+`, externalIPs: [192.0.2.1]`)), byPolicy},
		{"taking over a Service of others by apply", apply(ours+"services/web", strings.Replace(service("web", selector), "6443", "80", 1)), byPolicy},
		{"changing a Service of others", patch(ours+"services/web", `{"spec":{"selector":{"app":"up"}}}`), byPolicy},
		{"changing the gateway's own Service", patch(ours+"services/postern", `{"spec":{"externalIPs":["192.0.2.1"]}}`), byPolicy},
		{"deleting a Service of others", remove(ours + "services/web"), byPolicy},
		{"a Service elsewhere", create(tenants+"services", service("postern-cloud", selector)), byRBAC},
		{"a Service's status", patch(ours+"services/web/status", `{"status":{"conditions":[]}}`), byRBAC},
		{"Endpoints", create(ours+"endpoints", `apiVersion: v1, kind: Endpoints, metadata: {name: web}, subsets: [{addresses: [{ip: 10.1.1.1}], ports: [{port: 80}]}]`), byRBAC},
		{"an EndpointSlice", create("/apis/discovery.k8s.io/v1/namespaces/postern/endpointslices", `apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4,
			metadata: {name: up, labels: {kubernetes.io/service-name: web}}, endpoints: [{addresses: [10.1.1.1]}], ports: [{port: 80}]`), byRBAC},
		{"an EndpointSlice elsewhere", create("/apis/discovery.k8s.io/v1/namespaces/tenant/endpointslices", `apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4,
			metadata: {name: up, labels: {kubernetes.io/service-name: web}}, endpoints: [{addresses: [10.1.1.1]}], ports: [{port: 80}]`), byRBAC},
		{"an Ingress", create("/apis/networking.k8s.io/v1/namespaces/postern/ingresses", `apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: up}, spec: {defaultBackend: {service: {name: web, port: {number: 80}}}}`), byRBAC},
		{"a NetworkPolicy for pods of others", create(policies, `apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: postern-cloud, `+marks+`}, spec: {podSelector: {}, policyTypes: [Ingress], ingress: [{}]}`), byPolicy},
		{"a NetworkPolicy that lets traffic out", create(policies, `apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: postern-cloud, `+marks+`},
			spec: {podSelector: {matchLabels: {app.kubernetes.io/name: postern, app.kubernetes.io/instance: postern}}, policyTypes: [Ingress, Egress], egress: [{}]}`), byPolicy},
		{"deleting a NetworkPolicy of others", remove(policies + "/closed"), byPolicy},
		{"opening a NetworkPolicy of others", patch(policies+"/closed", `{"spec":{"ingress":[{}]}}`), byPolicy},

		// Other owners' objects.
		{"Secrets of another namespace", read(tenants + "secrets"), byRBAC},
		{"a Secret of another namespace", read(tenants + "secrets/crown"), byRBAC},
		{"all Secrets", read("/api/v1/secrets"), byRBAC},
		{"Secrets of the accounts' namespace", read(peers + "secrets"), byRBAC},
		{"pods of another namespace", read(tenants + "pods"), byRBAC},
		{"a pod of another namespace", read(tenants + "pods/web"), byRBAC},
		{"all pods", read("/api/v1/pods"), byRBAC},
		{"all ConfigMaps", read("/api/v1/configmaps"), byRBAC},
		{"ConfigMaps of kube-system", read(system + "configmaps"), byRBAC},
		{"a ConfigMap of kube-system", patch(system+"configmaps/settings", `{"data":{"a":"b"}}`), byRBAC},
		{"cluster-info", patch("/api/v1/namespaces/kube-public/configmaps/cluster-info", `{"data":{"a":"b"}}`), byRBAC},
		{"a Secret of others in its namespace", patch(ours+"secrets/crown", `{"data":{"jewels":"Mg=="}}`), byPolicy},
		{"a Secret that a Peer names", patch(ours+"secrets/ours", `{"data":{"psk":"Mg=="}}`), byPolicy},
		{"deleting a Secret of others in its namespace", remove(ours + "secrets/crown"), byPolicy},
		{"a revision for helm to roll back to", create(ours+"secrets", secret("sh.helm.release.v1.postern.v9", "helm.sh/release.v1", ", labels: {owner: helm, name: postern}")), byPolicy},
		{"the present revision of helm", patch(ours+"secrets/sh.helm.release.v1.postern.v1", `{"data":{"release":""}}`), byPolicy},
		{"a certificate for an Ingress", create(ours+"secrets", secret("up", "kubernetes.io/tls", "")+`, data: {tls.crt: "", tls.key: ""}`), byPolicy},
		{"a Secret of any name", create(ours+"secrets", secret("up", "Opaque", "")), byPolicy},
		{"a Secret for another gateway", create(ours+"secrets", secret("another-state-key", "postern.dev/state", "")), byPolicy},
		{"a Lease of others in its namespace", create(leases, `apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: up}`), byPolicy},
		{"taking a Lease of others", patch(leases+"/another", `{"spec":{"holderIdentity":"up"}}`), byRBAC},
		{"a Lease of the control plane", patch("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler", `{"spec":{"holderIdentity":"up"}}`), byRBAC},
		{"an Event in another's name", create(ours+"events", `apiVersion: v1, kind: Event, metadata: {name: up}, involvedObject: {kind: Pod, name: postern-0, namespace: postern}, reportingComponent: kubelet`), byPolicy},
		{"an Event of others", patch(ours+"events/web.1", `{"message":"all is well"}`), byPolicy},
		{"an Event of others in its own name", patch(ours+"events/web.1", `{"reportingComponent":"postern","message":"all is well"}`), byPolicy},
		{"an Event elsewhere", create(tenants+"events", `apiVersion: v1, kind: Event, metadata: {name: up}, involvedObject: {kind: Pod, name: web, namespace: tenant}, reportingComponent: postern`), byRBAC},
		{"a namespace", create("/api/v1/namespaces", `apiVersion: v1, kind: Namespace, metadata: {name: up}`), byRBAC},
		{"Pod Security of its namespace", patch("/api/v1/namespaces/postern", `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`), byRBAC},
		{"Pod Security of another namespace", patch("/api/v1/namespaces/tenant", `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`), byRBAC},
		{"a quota", create(ours+"resourcequotas", `apiVersion: v1, kind: ResourceQuota, metadata: {name: up}, spec: {hard: {pods: "0"}}`), byRBAC},
		{"a Ticket", create("/apis/postern.dev/v1alpha1/namespaces/postern/tickets", `apiVersion: postern.dev/v1alpha1, kind: Ticket, metadata: {name: up}, spec: {invite: {}}`), byRBAC},
		{"a Peer elsewhere", create("/apis/postern.dev/v1alpha1/namespaces/tenant/peers", `apiVersion: postern.dev/v1alpha1, kind: Peer, metadata: {name: up}, spec: {publicKey: `+aKey+`}`), byRBAC},
	}
}

const aKey = `"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE="`

func plain(method, path string) request { return request{method: method, path: path} }

// needs are the gateway's own requests, one of each kind: see the packages that send them.
func needs() []attempt {
	return []attempt{
		{"state", create(ours+"secrets", secret("postern-state-key", "postern.dev/state", "")), nobody},
		{"the text of a ticket", create(ours+"secrets", secret("postern-ticket-a", "Opaque", ", labels: {postern.dev/ticket: a}")), nobody},
		{"a kubeconfig", apply(ours+"secrets/postern-cloud-kubeconfig", secret("postern-cloud-kubeconfig", "Opaque", ", "+marks)), nobody},
		{"a Service for a peer", apply(ours+"services/postern-cloud", service("postern-cloud", selector+", type: ClusterIP")), nobody},
		{"a NetworkPolicy for a peer", apply(policies+"/postern-cloud", `apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: postern-cloud, `+marks+`},
			spec: {podSelector: {matchLabels: {app.kubernetes.io/name: postern, app.kubernetes.io/instance: postern}}, policyTypes: [Ingress], ingress: [{ports: [{port: 51820, protocol: UDP}]}]}`), nobody},
		{"the lease", create(leases, `apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: postern}`), nobody},
		{"the label of the active pod", patch(ownPod, `{"metadata":{"labels":{"postern.dev/role":"active"}}}`), nobody},
		{"no label", patch(ownPod, `{"metadata":{"labels":{"postern.dev/role":null}}}`), nobody},
		{"an Event", create(ours+"events", `apiVersion: v1, kind: Event, metadata: {name: up}, involvedObject: {kind: Pod, name: postern-0, namespace: postern}, reportingComponent: postern`), nobody},
		{"a Peer", create("/apis/postern.dev/v1alpha1/namespaces/postern/peers", `apiVersion: postern.dev/v1alpha1, kind: Peer, metadata: {name: up}, spec: {publicKey: `+aKey+`}`), nobody},
		{"an account of a peer", create(peers+"serviceaccounts", `apiVersion: v1, kind: ServiceAccount, metadata: {name: postern-peer-cloud}`), nobody},
		{"pods of its namespace", read(ours + "pods"), nobody},
		{"nodes", read("/api/v1/nodes"), nobody},
	}
}

// The tests share one API server; those that remove the chart's policy come last.
func TestAccountIsBounded(t *testing.T) {
	w := newWorld(t)
	t.Run("escalations", func(t *testing.T) { testEscalations(t, w) })
	t.Run("whatever roles say", func(t *testing.T) { testWhateverRolesSay(t, w) })
	t.Run("rights", func(t *testing.T) { testRights(t, w) })
	t.Run("nothing of the cluster", func(t *testing.T) { testNothingOfTheCluster(t, w) })
	t.Run("namespaces of pods", func(t *testing.T) { testPeerServicesFrom(t, w) })
	t.Run("services of clusters", func(t *testing.T) { testServicesOfClusters(t, w) })
	t.Run("guard", func(t *testing.T) { testGuard(t, w) })
}

// testEscalations acts as someone with the token of the gateway's account in the chart. Each
// attempt must be refused by the stated authority, and must be possible for the administrator.
func testEscalations(t *testing.T, w *world) {
	inForce(t, w)
	play(t, w, append(attempts(signingRequest(t, "system:kube-controller-manager")), needs()...))
}

func play(t *testing.T, w *world, list []attempt) {
	for _, a := range list {
		t.Run(a.name, func(t *testing.T) {
			status, body := w.ask(t, a.request, false)
			if got := refuser(status, body); got != a.by {
				t.Errorf("refused by %q, want %q: %d %.400s", got, a.by, status, body)
			}
			if a.by == nobody && status >= http.StatusBadRequest {
				t.Errorf("got %d: %.400s", status, body)
			}
			if a.as != nil {
				return
			}
			status, body = w.ask(t, a.request, true)
			if status == http.StatusForbidden || status == http.StatusUnauthorized || status == http.StatusBadRequest && a.mediaType != "" || status == http.StatusUnprocessableEntity {
				t.Errorf("the administrator gets %d too, so it shows nothing: %.400s", status, body)
			}
		})
	}
}

// testWhateverRolesSay gives the account all rights in its namespace, an easy mistake with a
// binding for all accounts of a namespace. Then the policy must refuse what RBAC refuses
// otherwise.
func testWhateverRolesSay(t *testing.T, w *world) {
	w.kubectl(t, "", "create", "rolebinding", "mistake", "-n", namespace, "--clusterrole=cluster-admin", "--group=system:serviceaccounts:"+namespace)
	for _, a := range attempts(signingRequest(t, "x")) {
		inNamespace := strings.Contains(a.path, "/namespaces/"+namespace+"/") && a.method != http.MethodGet
		if a.by != byRBAC || !inNamespace {
			continue
		}
		eventually(t, a.name+" is refused by the policy", func() (bool, string) {
			status, body := w.ask(t, a.request, false)
			return refuser(status, body) == byPolicy, body
		})
	}
	w.kubectl(t, "", "delete", "rolebinding", "mistake", "-n", namespace)
	eventually(t, "the mistake is undone", func() (bool, string) {
		status, body := w.ask(t, read(ours+"configmaps"), false)
		return status == http.StatusForbidden, body
	})
}

// inForce waits until the API server enforces the policy.
func inForce(t *testing.T, w *world) {
	t.Helper()
	first := attempts("")[0]
	eventually(t, "the policy is in force", func() (bool, string) {
		status, body := w.ask(t, first.request, false)
		return status == http.StatusForbidden, body
	})
}

// refuser returns who refused a request.
func refuser(status int, body string) string {
	switch {
	case status != http.StatusForbidden:
		return nobody
	case strings.Contains(body, "ValidatingAdmissionPolicy"):
		return byPolicy
	case strings.Contains(body, " cannot "):
		return byRBAC
	}
	return "?"
}

// signingRequest returns a request for a user's certificate, in the form for an object.
func signingRequest(t *testing.T, user string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: user}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}
