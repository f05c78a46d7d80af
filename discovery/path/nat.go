package path

// Terms of RFC 4787 that decisions depend on.
const (
	mappingNone             = "none"
	endpointIndependent     = "endpoint-independent"
	endpointDependent       = "endpoint-dependent"
	addressDependent        = "address-dependent"
	addressAndPortDependent = "address-and-port-dependent"
)

// mapped reports whether a mapping behaviour is that of a NAT.
func mapped(mapping string) bool {
	return mapping == endpointIndependent || perDestination(mapping)
}

// perDestination reports whether a NAT uses another port for each destination, so that no third
// party can tell which port the peer will see.
func perDestination(mapping string) bool {
	switch mapping {
	case endpointDependent, addressDependent, addressAndPortDependent:
		return true
	}
	return false
}

// canPunch reports whether two NATs can be opened towards each other, or why not. If in doubt, it
// says yes.
//
//	own mapping \ peer's   independent                    per destination
//	independent            yes                            unless our own filter asks for the port
//	per destination        unless the peer's filter       no: neither knows where to send
//	                       asks for the port
//
// There is no port prediction. A filter that lets anyone in needs no punching.
func canPunch(own, other NAT) (bool, string) {
	a, b := perDestination(own.Mapping), perDestination(other.Mapping)
	switch {
	case own.Filtering == endpointIndependent || other.Filtering == endpointIndependent:
		return true, ""
	case a && b:
		return false, "both NATs take another port for each destination: no direct path without guessing ports"
	case a && other.Filtering == addressAndPortDependent:
		return false, "our NAT takes another port for each destination, and the peer's lets in known ports alone"
	case b && own.Filtering == addressAndPortDependent:
		return false, "the peer's NAT takes another port for each destination, and ours lets in known ports alone"
	}
	return true, ""
}

// opensFirst reports whether the proposer opens its NAT before the answerer does. The side whose
// NAT can be poisoned goes first, since then none of the peer's packets are unsolicited. If both
// can be, low TTLs keep the openers away from the peer's NAT.
//
//	own strays \ peer's   drops      answers    unknown
//	drops                 proposer   answerer   answerer
//	answers               proposer   proposer   proposer
//	unknown               proposer   proposer   proposer
func opensFirst(own, other NAT) bool {
	return own.Strays != StraysDropped || other.Strays == StraysDropped
}
