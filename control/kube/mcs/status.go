package mcs

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/postern-dev/postern/control/kube/objects"
	services "github.com/postern-dev/postern/control/mcs"
)

// statusesOf returns the statuses of ServiceExports. Whether there is a conflict in what is held is
// not known, so that stays as it was.
func statusesOf(list []export, state services.State, held map[services.Name]bool, now time.Time) []object {
	by, failed := map[services.Name][]services.Conflict{}, map[services.Name]services.Problem{}
	for _, c := range state.Conflicts {
		by[c.Name] = append(by[c.Name], c)
	}
	for _, p := range state.Problems {
		if p.Peer == "" {
			failed[p.Name] = p
		}
	}
	out := make([]object, 0, len(list))
	for _, e := range list {
		was, conditions := e.object.Status.Conditions, []metav1.Condition{}
		name := services.Name{Namespace: e.object.Namespace, Name: e.object.Name}
		for _, x := range conditionsOf(e, by[name], failed[name]) {
			if c := meta.FindStatusCondition(was, x.Type); c != nil && held[name] && x.Type == string(v1beta1.ServiceExportConditionConflict) {
				conditions = append(conditions, *c)
				continue
			}
			x.ObservedGeneration, x.LastTransitionTime = e.object.Generation, metav1.NewTime(now.Truncate(time.Second))
			conditions = append(conditions, objects.Since(was, x))
		}
		out = append(out, object{id: id{exportKind, e.object.Namespace, e.object.Name},
			status: &v1beta1.ServiceExportStatus{Conditions: conditions}})
	}
	return out
}

// conditionsOf returns the conditions without times. A problem with a code is why the gateway does
// not offer the export.
func conditionsOf(e export, conflicts []services.Conflict, problem services.Problem) []metav1.Condition {
	if e.invalid != nil {
		return []metav1.Condition{
			v1beta1.NewServiceExportCondition(v1beta1.ServiceExportConditionValid, metav1.ConditionFalse, e.invalid.reason, e.invalid.message),
			v1beta1.NewServiceExportCondition(v1beta1.ServiceExportConditionReady, metav1.ConditionFalse, v1beta1.ServiceExportReasonPending, "there is nothing to export while this is not valid"),
		}
	}
	conflict := v1beta1.NewServiceExportCondition(v1beta1.ServiceExportConditionConflict, metav1.ConditionFalse, v1beta1.ServiceExportReasonNoConflicts, "all clusters that export the service agree")
	if len(conflicts) > 0 {
		var reasons, messages []string
		for _, c := range conflicts {
			if !slices.Contains(reasons, c.Reason) {
				reasons = append(reasons, c.Reason)
			}
			messages = append(messages, c.Message)
		}
		conflict.Status, conflict.Reason, conflict.Message = metav1.ConditionTrue, strings.Join(reasons, ","), strings.Join(messages, "; ")
	}
	ready := v1beta1.NewServiceExportCondition(v1beta1.ServiceExportConditionReady, metav1.ConditionTrue, v1beta1.ServiceExportReasonExported, "the gateway offers it to the peers that it may be exported to")
	if problem.Code != "" {
		ready.Status, ready.Reason = metav1.ConditionFalse, string(v1beta1.ServiceExportReasonFailed)
		ready.Message = strings.TrimSuffix(string(problem.Code)+": "+problem.Detail, ": ")
	}
	return []metav1.Condition{
		v1beta1.NewServiceExportCondition(v1beta1.ServiceExportConditionValid, metav1.ConditionTrue, v1beta1.ServiceExportReasonValid, "the Service can be exported"),
		ready, conflict,
	}
}
