package objects

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

const (
	// LabelUse marks a Secret that a Peer or Ticket may name. The gateway can read Secrets, and
	// sends what a Peer or Ticket names to addresses in it, while their authors may have no right
	// to Secrets. So the Secret itself must permit that use. The value is for people.
	LabelUse = "postern.dev/use"

	labelsOwn      = "postern.dev/"
	labelManagedBy = "app.kubernetes.io/managed-by"
	manager        = "postern"
)

// MayName says why a Peer or Ticket may not name a Secret, and how to permit it; nil if it may.
// use is the suggested value of [LabelUse].
func MayName(x *corev1.Secret, use string) error {
	if x.Labels[labelManagedBy] == manager {
		return fmt.Errorf("it is the gateway's own (label %s=%s): put the value into another Secret, and label that %s=%s", labelManagedBy, manager, LabelUse, use)
	}
	for label := range x.Labels {
		if strings.HasPrefix(label, labelsOwn) && label != LabelUse {
			return fmt.Errorf("it is the gateway's own (label %s): put the value into another Secret, and label that %s=%s", label, LabelUse, use)
		}
	}
	if x.Type != corev1.SecretTypeOpaque {
		return fmt.Errorf("its type is %q (want %s): put the value into another Secret, and label that %s=%s", x.Type, corev1.SecretTypeOpaque, LabelUse, use)
	}
	if _, is := x.Labels[LabelUse]; !is {
		return fmt.Errorf("it does not say that it may be used here: `kubectl label secret %s -n %s %s=%s`", x.Name, x.Namespace, LabelUse, use)
	}
	return nil
}
