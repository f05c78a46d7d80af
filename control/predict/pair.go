package predict

// openness is how well a gateway can be reached from outside: rows and columns of the table
// below.
type openness int

const (
	dial              openness = iota // a public address, a Service or a forwarded port
	fullCone                          // its NAT lets anyone in
	addressRestricted                 // … addresses that it has sent to
	portRestricted                    // … addresses and ports that it has sent to
	straysAnswered                    // the same, and strays change its mapping
	symmetric                         // its NAT maps each destination to a different port
)

// outcome is the path of a pair.
type outcome int

const (
	direct outcome = iota
	punch
	relayed
)

// table returns a pair's outcome: discovery/path/README.md, "Measured in virtual time". It is
// symmetric.
func table(a, b openness) outcome {
	if a > b {
		a, b = b, a
	}
	const D, P, R = direct, punch, relayed
	return [...][6]outcome{
		dial:              {D, D, D, D, D, D},
		fullCone:          {D, D, D, D, D, D},
		addressRestricted: {D, D, D, D, D, D},
		portRestricted:    {D, D, D, D, P, R},
		straysAnswered:    {D, D, D, P, P, R},
		symmetric:         {D, D, D, R, R, R},
	}[a][b]
}

// openness returns a gateway's openness based only on its NAT. For unknown properties it assumes
// the usual worst case, and sure is false.
func (n NAT) openness() (o openness, sure bool) {
	switch n.Mapping {
	case "", "unknown":
		return symmetric, false // pods are usually behind a NAT that maps at random
	case "address-dependent", "address-and-port-dependent", "endpoint-dependent":
		return symmetric, true
	}
	// A firewall filters even without a NAT.
	switch n.Filtering {
	case "none", "endpoint-independent":
		if n.Mapping == "none" {
			return dial, true
		}
		return fullCone, true
	case "address-dependent":
		return addressRestricted, true
	case "address-and-port-dependent", "endpoint-dependent":
		if n.AnswersStrays && n.Mapping != "none" {
			return straysAnswered, true
		}
		return portRestricted, true
	}
	if n.Mapping == "none" {
		return dial, false // if no firewall is in the way
	}
	return portRestricted, false
}

// String names an openness in a sentence.
func (o openness) String() string {
	return [...]string{
		"can be dialled", "is behind a NAT that lets anyone in", "is behind a NAT that lets in the addresses that it has sent to",
		"is behind a NAT that lets in only the ports it has sent to", "is behind a NAT whose mapping strays can change",
		"is behind a NAT that maps each destination to another port (symmetric)",
	}[o]
}
