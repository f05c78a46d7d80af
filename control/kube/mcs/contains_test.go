package mcs

import (
	"encoding/json"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/postern-dev/postern/control/kube/mirror"
)

// fill sets each field to a non-zero value, and gives each list and map one entry.
func fill(v reflect.Value) {
	switch x := v.Addr().Interface().(type) {
	case *metav1.Time:
		*x = metav1.Unix(1000, 0)
		return
	case *intstr.IntOrString:
		*x = intstr.FromInt32(1)
		return
	case *[]metav1.ManagedFieldsEntry: // only the API server writes these
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		value := reflect.New(v.Type().Elem()).Elem()
		fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("x").Convert(v.Type().Key()), value)
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	default:
		v.Set(reflect.ValueOf(1).Convert(v.Type()))
	}
}

// without calls visit for each part of a value: a field, an entry of a list or map, and the parts
// of these. During the call the part is zero, or a list is empty or longer.
func without(v reflect.Value, path string, visit func(path string)) {
	as := func(path string, value reflect.Value) {
		was := reflect.New(v.Type()).Elem()
		was.Set(v)
		v.Set(value)
		visit(path)
		v.Set(was)
	}
	as(path, reflect.Zero(v.Type()))
	if _, is := v.Addr().Interface().(json.Marshaler); is { // it is one value in JSON
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			without(v.Elem(), path, visit)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			without(v.Field(i), path+"."+v.Type().Field(i).Name, visit)
		}
	case reflect.Slice:
		if v.Len() > 0 {
			as(path+" empty", reflect.MakeSlice(v.Type(), 0, 0))
			as(path+" twice", reflect.AppendSlice(v, v))
			without(v.Index(0), path+"[0]", visit)
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			as(path+" empty", reflect.MakeMap(v.Type()))
			other := reflect.MakeMap(v.Type())
			other.SetMapIndex(k, reflect.Zero(v.Type().Elem()))
			as(path+"[x]", other)
		}
	}
}

// inJSON reports the same as contains, for the JSON that is sent to the API server.
func inJSON(want, have any) bool {
	switch want := want.(type) {
	case nil:
		list, _ := have.([]any)
		return have == nil || list != nil && len(list) == 0
	case map[string]any:
		h, _ := have.(map[string]any)
		for k, v := range want {
			if !inJSON(v, h[k]) {
				return false
			}
		}
		return true
	case []any:
		h, _ := have.([]any)
		same := len(want) == len(h)
		for i := 0; same && i < len(want); i++ {
			same = inJSON(want[i], h[i])
		}
		return same
	}
	return want == have
}

func unstructured(t *testing.T, x any) map[string]any {
	t.Helper()
	out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(x)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// For all fields of all kinds that are written: existing values are compared as they would be sent,
// and a value that is no longer wanted is noticed, too, so that it is removed.
func TestWhatIsNotWantedAnyMoreIsNoticed(t *testing.T) {
	compared := func(t *testing.T, path string, want, have any) {
		t.Helper()
		for what, c := range map[string]struct{ want, have any }{"wanted": {want, have}, "there": {have, want}} {
			if got, should := contains(c.want, c.have), inJSON(unstructured(t, c.want), unstructured(t, c.have)); got != should {
				t.Errorf("%s, which is another as it is %s: got %v, want %v", path, what, got, should)
			}
		}
	}
	w := &writer{}
	for _, body := range []mirror.Object{&corev1.Service{}, &discoveryv1.EndpointSlice{}, &v1beta1.ServiceImport{}} {
		t.Run(reflect.TypeOf(body).Elem().Name(), func(t *testing.T) {
			copied := func(x mirror.Object) mirror.Object { return x.DeepCopyObject().(mirror.Object) }
			fill(reflect.ValueOf(body).Elem())
			body.SetDeletionTimestamp(nil)
			plain, have := copied(body), copied(body)
			stamp(have)
			if w.apply(object{body: copied(body)}, have) != nil {
				t.Fatal("it is applied again as it is")
			}
			parts := 0
			without(reflect.ValueOf(body).Elem(), "", func(path string) {
				if parts++; path == "" || path == ".ObjectMeta.DeletionTimestamp" || path == ".ObjectMeta.ManagedFields" {
					return
				}
				compared(t, path, body, plain)
				if w.apply(object{body: copied(body)}, have) == nil {
					t.Errorf("that %s is not wanted any more is not noticed", path)
				}
			})
			t.Logf("%d parts", parts)
		})
	}
	for have, status := range map[mirror.Object]any{&v1beta1.ServiceExport{}: &v1beta1.ServiceExportStatus{}, &v1beta1.ServiceImport{}: &v1beta1.ServiceImportStatus{}} {
		t.Run(reflect.TypeOf(status).Elem().Name(), func(t *testing.T) {
			is := statusOf(have)
			fill(reflect.ValueOf(status).Elem())
			fill(reflect.ValueOf(is).Elem())
			if w.apply(object{status: status}, have) != nil {
				t.Fatal("it is applied again as it is")
			}
			without(reflect.ValueOf(status).Elem(), "", func(path string) {
				compared(t, path, status, is)
				if w.apply(object{status: status}, have) == nil {
					t.Errorf("that %s is not wanted any more is not noticed", path)
				}
			})
		})
	}
}

// Others' conditions are not compared with the wanted ones, so they cause no writes.
func TestConditionsOfOthersStay(t *testing.T) {
	condition := func(kind string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, LastTransitionTime: metav1.Unix(1000, 0)}
	}
	have := slim(&v1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "postern"}}},
		Status: v1beta1.ServiceExportStatus{Conditions: []metav1.Condition{condition("Synced"), condition("Valid")}}})
	for kind, same := range map[string]bool{"Valid": true, "Ready": false} {
		status := &v1beta1.ServiceExportStatus{Conditions: []metav1.Condition{condition(kind)}}
		if got := (&writer{}).apply(object{status: status}, have) == nil; got != same {
			t.Errorf("%s is wanted, and that nothing is written is %v", kind, got)
		}
	}
}
