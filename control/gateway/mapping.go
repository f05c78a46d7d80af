package gateway

import (
	"github.com/postern-dev/postern/control/check"
	"github.com/postern-dev/postern/discovery/portmap"
)

// mappingFacts is the port that the router is asked for, for a check; nil when none is.
func mappingFacts(s *portmap.Status) *check.Mapping {
	if s == nil {
		return nil
	}
	shown := portMappingStatus(s)
	return &check.Mapping{
		State: shown.State, Protocol: shown.Protocol, Router: shown.Router, External: shown.External,
		Verified: shown.Verified, Err: shown.Error, Code: mappingCode(s.Fault),
	}
}

func mappingCode(f portmap.Fault) check.Code {
	switch f {
	case portmap.FaultStale:
		return check.MappingStale
	case portmap.FaultRefused:
		return check.MappingRefused
	case portmap.FaultUnreachable:
		return check.RouterSilent
	case portmap.FaultBehindNAT:
		return check.MappingInside
	case portmap.FaultContradicted, portmap.FaultImpossible:
		return check.MappingElsewhere
	case portmap.FaultNone:
	}
	return ""
}
