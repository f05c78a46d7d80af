package gateway

import (
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/control/paths"
	"github.com/postern-dev/postern/discovery/portmap"
)

// mappingFacts is the port that the router is asked for, for a check; nil when none is.
func mappingFacts(s *portmap.Status) *check.Mapping {
	if s == nil {
		return nil
	}
	shown := paths.PortMappingStatus(s)
	return &check.Mapping{
		State: shown.State, Protocol: shown.Protocol, Router: shown.Router, External: shown.External,
		Verified: shown.Verified, Err: shown.Error, Code: mappingCode(s.Fault),
	}
}

func mappingCode(f portmap.Fault) catalogue.Code {
	switch f {
	case portmap.FaultStale:
		return catalogue.MappingStale
	case portmap.FaultRefused:
		return catalogue.MappingRefused
	case portmap.FaultUnreachable:
		return catalogue.RouterSilent
	case portmap.FaultBehindNAT:
		return catalogue.MappingInside
	case portmap.FaultContradicted, portmap.FaultImpossible:
		return catalogue.MappingElsewhere
	case portmap.FaultNone:
	}
	return ""
}
