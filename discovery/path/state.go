package path

// State is the state of a pair. The package comment has the diagram.
type State uint8

// States of a pair.
const (
	Frozen   State = iota // must not be tried: an unsolicited packet would do harm
	Probing               // probes are sent, none answered yet
	Valid                 // proven, and in reserve
	Selected              // proven, and in use
	Suspect               // was proven and stopped answering
	Failed                // does not answer; tried again later
)

// String returns the state in lower case.
func (s State) String() string {
	names := [...]string{"frozen", "probing", "valid", "selected", "suspect", "failed"}
	if int(s) < len(names) {
		return names[s]
	}
	return "unknown"
}
