package check

// ClusterParams are the parameters of the codes about what a gateway has in its cluster.
type ClusterParams struct {
	// Namespace is where the object is, Object its kind and name ("Service postern").
	Namespace string `json:"namespace,omitempty"`
	Object    string `json:"object,omitempty"`
	// Account is the ServiceAccount that lacks a right, namespace:name; Verbs and Resource
	// are the right, in kubectl's words.
	Account  string `json:"account,omitempty"`
	Verbs    string `json:"verbs,omitempty"`
	Resource string `json:"resource,omitempty"`
}

// placed is the object with its namespace, for a sentence.
func (p ClusterParams) placed(otherwise string) string {
	if p.Namespace == "" {
		return or(p.Object, otherwise)
	}
	return or(p.Object, otherwise) + " in namespace " + p.Namespace
}

// inNamespace is kubectl's and helm's flag.
func (p ClusterParams) inNamespace() string {
	if p.Namespace == "" {
		return ""
	}
	return " -n " + p.Namespace
}
