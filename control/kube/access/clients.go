package access

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/postern-dev/postern/control/kube"
	"github.com/postern-dev/postern/control/kube/objects"
)

// clients use no typed API: bodies are built here, and only the metadata of answers is read.
type clients struct {
	core, networking rest.Interface
}

func newClients(c *kube.Cluster) (clients, error) {
	core, err := c.Group(corev1.SchemeGroupVersion)
	if err != nil {
		return clients{}, fmt.Errorf("access: %w", err)
	}
	networking, err := c.Group(networkingv1.SchemeGroupVersion)
	if err != nil {
		return clients{}, fmt.Errorf("access: %w", err)
	}
	return clients{core, networking}, nil
}

// pageSize bounds a list's pages.
const pageSize = 500

// listMetadata lists objects, metadata only.
func listMetadata(ctx context.Context, c rest.Interface, resource, namespace string, o metav1.ListOptions) ([]metav1.PartialObjectMetadata, error) {
	var out []metav1.PartialObjectMetadata
	o.Limit = pageSize
	for {
		raw, err := bodyOf(c.Get().Namespace(namespace).Resource(resource).SetHeader("Accept", objects.MetadataList).
			VersionedParams(&o, metav1.ParameterCodec).Do(ctx))
		if err != nil {
			return nil, err
		}
		var page metav1.PartialObjectMetadataList
		if err := json.Unmarshal(raw, &page); err != nil {
			return nil, fmt.Errorf("the list of %s cannot be read: %w", resource, err)
		}
		out = append(out, page.Items...)
		if o.Continue = page.Continue; o.Continue == "" {
			return out, nil
		}
	}
}

// bodyOf returns the body of an answer. Result.Raw alone would not say why a request was rejected.
func bodyOf(r rest.Result) ([]byte, error) {
	if err := r.Error(); err != nil {
		return nil, err
	}
	return r.Raw()
}
