package exposure

import (
	"time"

	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
)

func (d *derived) problem(name string, code catalogue.Code, p catalogue.Params) {
	d.since(name, code, p, time.Time{})
}

func (d *derived) since(name string, code catalogue.Code, p catalogue.Params, since time.Time) {
	d.Problems = append(d.Problems, check.OwnProblem{Name: name, Code: code, Params: p, Since: since})
}

// about are the parameters of a problem with an object of the gateway's namespace.
func (f facts) about(kind, name string) catalogue.Params {
	var p catalogue.Params
	p.Namespace, p.Object, p.Port = f.namespace, kind+" "+name, f.port
	return p
}

// right are the parameters of a right that is missing.
func (f facts) right(resource, namespace string) catalogue.Params {
	var p catalogue.Params
	p.Account, p.Verbs, p.Resource, p.Namespace = f.account, "get,list,watch", resource, namespace
	return p
}
