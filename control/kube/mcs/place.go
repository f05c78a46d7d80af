package mcs

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/kube/mirror"
	"github.com/postern-dev/postern/control/kube/objects"
)

const (
	labelName      = "app.kubernetes.io/name"
	labelInstance  = "app.kubernetes.io/instance"
	labelManagedBy = "app.kubernetes.io/managed-by"
	program        = "postern"
)

// place is the mirrors of a namespace, or of all namespaces.
type place struct {
	namespace string                 // empty is all
	owner     *metav1.OwnerReference // of the objects made there; nil if nothing owns them
	known     bool                   // the owner was looked up
	exports   *mirror.Mirror[*v1beta1.ServiceExport]
	imports   *mirror.Mirror[*v1beta1.ServiceImport]
	services  *mirror.Mirror[*corev1.Service]
	slices    *mirror.Mirror[*discoveryv1.EndpointSlice]
}

func (c clients) place(namespace string, changed func()) *place {
	return &place{
		namespace: namespace,
		exports: mirror.New(mirror.Options[*v1beta1.ServiceExport]{
			Client: c.mcs, Resource: exportKind.resource, Namespace: namespace, List: &v1beta1.ServiceExportList{}, Changed: changed, Slim: slim[*v1beta1.ServiceExport],
		}),
		imports: mirror.New(mirror.Options[*v1beta1.ServiceImport]{
			Client: c.mcs, Resource: importKind.resource, Namespace: namespace, List: &v1beta1.ServiceImportList{}, Changed: changed, Slim: slim[*v1beta1.ServiceImport],
		}),
		services: mirror.New(mirror.Options[*corev1.Service]{
			Client: c.core, Resource: serviceKind.resource, Namespace: namespace, List: &corev1.ServiceList{}, Changed: changed, Slim: slimService,
		}),
		slices: mirror.New(mirror.Options[*discoveryv1.EndpointSlice]{
			Client: c.discovery, Resource: sliceKind.resource, Namespace: namespace, List: &discoveryv1.EndpointSliceList{}, Changed: changed, Slim: slimSlice,
		}),
	}
}

func (p *place) run(ctx context.Context, running *sync.WaitGroup) {
	for _, run := range []func(context.Context){p.exports.Run, p.imports.Run, p.services.Run, p.slices.Run} {
		running.Go(func() { run(ctx) })
	}
}

// problems returns why something is not being watched.
func (p *place) problems() []check.OwnProblem {
	return slices.Concat(
		problemOf(p.exports.Err(), exportKind.resource, p.namespace), problemOf(p.imports.Err(), importKind.resource, p.namespace),
		problemOf(p.services.Err(), serviceKind.resource, p.namespace), problemOf(p.slices.Err(), sliceKind.resource, p.namespace))
}

func problemOf(err error, resource, namespace string) []check.OwnProblem {
	if err == nil {
		return nil
	}
	p := objects.Problem(err, resource, namespace)
	p.Name = check.NameServices
	return []check.OwnProblem{p}
}

// slim drops the managed fields, others' conditions, and the spare capacity of lists. Texts that
// many objects have are stored once.
func slim[T mirror.Object](x T) T {
	if x.GetManagedFields() == nil {
		return x // it is slim, or too old to be one of many
	}
	x.SetManagedFields(nil)
	x.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	switch x := any(x).(type) {
	case *v1beta1.ServiceExport:
		x.Status.Conditions = slices.DeleteFunc(x.Status.Conditions, foreign)
	case *v1beta1.ServiceImport:
		x.Status.Conditions = slices.DeleteFunc(x.Status.Conditions, foreign)
	}
	x = x.DeepCopyObject().(T) // Its lists are as long as they have to be.
	x.SetNamespace(shared(x.GetNamespace()))
	x.SetLabels(sharedTexts(x.GetLabels()))
	for i, o := range x.GetOwnerReferences() {
		x.GetOwnerReferences()[i] = metav1.OwnerReference{APIVersion: shared(o.APIVersion), Kind: shared(o.Kind), Name: shared(o.Name), UID: shared(o.UID),
			Controller: o.Controller, BlockOwnerDeletion: o.BlockOwnerDeletion}
	}
	switch x := any(x).(type) {
	case *v1beta1.ServiceExport:
		shareTexts(x.Status.Conditions)
	case *v1beta1.ServiceImport:
		shareTexts(x.Status.Conditions)
	}
	return x
}

// foreign reports whether a condition of a status is another manager's. Those are left alone.
func foreign(c metav1.Condition) bool {
	switch v1beta1.ServiceExportConditionType(c.Type) {
	case v1beta1.ServiceExportConditionValid, v1beta1.ServiceExportConditionReady, v1beta1.ServiceExportConditionConflict:
		return false
	}
	return true
}

// shared returns the shared copy of a text. Equal texts that arrive between two garbage collections
// have one, above all those of a list.
func shared[T ~string](text T) T { return T(unique.Make(string(text)).Value()) }

func sharedTexts(texts map[string]string) map[string]string {
	if len(texts) == 0 {
		return nil
	}
	out := make(map[string]string, len(texts))
	for k, v := range texts {
		out[shared(k)] = shared(v)
	}
	return out
}

func shareTexts(list []metav1.Condition) {
	for i := range list {
		c := &list[i]
		c.Type, c.Reason, c.Message, c.Status = shared(c.Type), shared(c.Reason), shared(c.Message), shared(c.Status)
	}
}

// slimService reduces another owner's Service to what an export needs.
func slimService(s *corev1.Service) *corev1.Service {
	if s.Labels[labelManagedBy] == program {
		return slim(s)
	}
	var labels map[string]string
	if of := s.Labels[v1beta1.LabelServiceName]; of != "" { // another implementation's derived Service
		labels = map[string]string{v1beta1.LabelServiceName: of}
	}
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: s.Name, Namespace: s.Namespace, UID: s.UID, Labels: labels, DeletionTimestamp: s.DeletionTimestamp},
		Spec: corev1.ServiceSpec{
			Type: s.Spec.Type, ClusterIP: s.Spec.ClusterIP, ClusterIPs: s.Spec.ClusterIPs, IPFamilies: s.Spec.IPFamilies, Ports: s.Spec.Ports,
			SessionAffinity: s.Spec.SessionAffinity, SessionAffinityConfig: s.Spec.SessionAffinityConfig,
			InternalTrafficPolicy: s.Spec.InternalTrafficPolicy, TrafficDistribution: s.Spec.TrafficDistribution,
		},
	}
}

// aPod is stored instead of the reference to an endpoint's pod.
var aPod = &corev1.ObjectReference{Kind: "Pod"}

// slimSlice reduces another owner's EndpointSlice to its Service and its endpoints.
func slimSlice(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	if s.Labels[labelManagedBy] == program {
		return slim(s)
	}
	out := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: s.Name, Namespace: s.Namespace, UID: s.UID, Labels: map[string]string{discoveryv1.LabelServiceName: s.Labels[discoveryv1.LabelServiceName]}},
		AddressType: s.AddressType, Ports: s.Ports,
	}
	for _, e := range s.Endpoints {
		slim := discoveryv1.Endpoint{Addresses: e.Addresses, Conditions: e.Conditions, Hostname: e.Hostname}
		if value(e.TargetRef).Kind == aPod.Kind {
			slim.TargetRef = aPod
		}
		out.Endpoints = append(out.Endpoints, slim)
	}
	return out
}

// seen is the existing objects at one moment.
type seen struct {
	now        time.Time
	namespaces []string // those that exist and may be seen, sorted
	owners     map[string]*metav1.OwnerReference
	exports    []*v1beta1.ServiceExport
	services   map[types.NamespacedName]*corev1.Service
	slices     map[types.NamespacedName][]*discoveryv1.EndpointSlice // by their Service
	imports    map[types.NamespacedName]*v1beta1.ServiceImport
	objects    map[id]mirror.Object
}

// id identifies an object.
type id struct {
	kind            kind
	namespace, name string
}

func compareID(a, b id) int {
	return cmp.Or(cmp.Compare(a.kind.name, b.kind.name), cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
}

func keyOf(x metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: x.GetNamespace(), Name: x.GetName()}
}

// look collects the mirrors' objects. It returns false until the mirrors have seen everything,
// except in namespaces that may not be read.
func (s *session) look() (seen, bool) {
	out := seen{
		now: time.Now(), owners: map[string]*metav1.OwnerReference{}, services: map[types.NamespacedName]*corev1.Service{},
		slices:  map[types.NamespacedName][]*discoveryv1.EndpointSlice{},
		imports: map[types.NamespacedName]*v1beta1.ServiceImport{}, objects: map[id]mirror.Object{},
	}
	for _, p := range s.places {
		exports, a := p.exports.Objects()
		imports, b := p.imports.Objects()
		all, c := p.services.Objects()
		endpoints, d := p.slices.Objects()
		if p.denied() {
			continue
		}
		if !a || !b || !c || !d {
			return seen{}, false
		}
		out.owners[p.namespace] = p.owner
		if p.namespace != "" {
			out.namespaces = append(out.namespaces, p.namespace)
		}
		for _, x := range exports {
			if x.DeletionTimestamp == nil {
				out.exports = append(out.exports, x)
			}
			out.objects[id{exportKind, x.Namespace, x.Name}] = x
		}
		for _, x := range imports {
			out.imports[keyOf(x)] = x
			out.objects[id{importKind, x.Namespace, x.Name}] = x
		}
		for _, x := range all {
			out.services[keyOf(x)] = x
			out.objects[id{serviceKind, x.Namespace, x.Name}] = x
		}
		for _, x := range endpoints {
			of := types.NamespacedName{Namespace: x.Namespace, Name: x.Labels[discoveryv1.LabelServiceName]}
			out.slices[of] = append(out.slices[of], x)
			out.objects[id{sliceKind, x.Namespace, x.Name}] = x
		}
	}
	if s.all == nil {
		return out, true
	}
	list, synced := s.all.Objects()
	for _, x := range list {
		if x.DeletionTimestamp == nil {
			out.namespaces = append(out.namespaces, x.Name)
		}
	}
	return out, synced
}

// denied reports whether the namespace may not be read, or does not exist.
func (p *place) denied() bool {
	return p.exports.Denied() || p.imports.Denied() || p.services.Denied() || p.slices.Denied()
}

// owner returns the owner of the objects made in a namespace.
func (s seen) owner(namespace string) *metav1.OwnerReference {
	if o := s.owners[namespace]; o != nil {
		return o
	}
	return s.owners[""]
}

// labels returns the labels of all our objects.
func (o Options) labels() map[string]string {
	return map[string]string{labelName: program, labelInstance: o.Release, labelManagedBy: program}
}

// ours reports whether an object may be changed. A ServiceExport belongs to its user; only its
// status is ours.
func (o Options) ours(x mirror.Object) bool {
	if _, is := x.(*v1beta1.ServiceExport); is {
		return false
	}
	have := x.GetLabels()
	for k, v := range o.labels() {
		if have[k] != v {
			return false
		}
	}
	_, peer := have["postern.dev/peer"] // a Service of package access
	return !peer && o.owner(x) == ""
}

// role returns the name of the Role or ClusterRole that gives the right to import, and owns what is
// made.
func (o Options) role() string { return o.Release + "-" + o.Cluster.Namespace() + roleSuffix }

const roleSuffix = "-mcs"

// owner returns the Role or ClusterRole of another gateway that owns an object; empty if none does. A
// release in another namespace may have the same name, and so the same labels.
func (o Options) owner(x mirror.Object) string {
	for _, r := range x.GetOwnerReferences() {
		if (r.Kind == "Role" || r.Kind == "ClusterRole") && strings.HasSuffix(r.Name, roleSuffix) && r.Name != o.role() {
			return r.Kind + " " + r.Name
		}
	}
	return ""
}

func sortedProblems(list []check.OwnProblem) []check.OwnProblem {
	slices.SortStableFunc(list, func(a, b check.OwnProblem) int {
		return cmp.Or(cmp.Compare(a.Code, b.Code), cmp.Compare(a.Params.Namespace, b.Params.Namespace), cmp.Compare(a.Params.Resource, b.Params.Resource), cmp.Compare(a.Params.Object, b.Params.Object), cmp.Compare(a.Params.Peer, b.Params.Peer))
	})
	return slices.CompactFunc(list, func(a, b check.OwnProblem) bool {
		return a.Code == b.Code && a.Params.Namespace == b.Params.Namespace && a.Params.Resource == b.Params.Resource && a.Params.Object == b.Params.Object && a.Params.Peer == b.Params.Peer
	})
}
