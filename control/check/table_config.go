package check

import "fmt"

// configEntries are the codes of the configuration and the state directory.
func configEntries() []Entry {
	return []Entry{
		{LocalListener, "a local listener could not be opened", func(p Params) string {
			return detail(fmt.Sprintf("the listener for %s of %s could not be opened on %s", p.Service, p.Peer, or(p.Address, "a loopback port")), p)
		}, func(p Params) string {
			return fmt.Sprintf("end what holds the port (`ss -ltnp`), or choose another: `postern peer local %s %s=127.0.0.1:PORT`", p.Peer, p.Service)
		}},
		{ConfigRefused, "the configuration was refused", func(p Params) string {
			place := p.File
			if p.Line > 0 {
				place = fmt.Sprintf("%s line %d", place, p.Line)
			}
			if p.Field != "" {
				place = fmt.Sprintf("%s, %s", place, p.Field)
			}
			return detail(or(place, "the configuration"), p)
		}, func(p Params) string {
			return fmt.Sprintf("correct it, test it with `postern config validate %s`, then send SIGHUP; until then the old configuration stays in force", or(p.File, "FILE"))
		}},
		{NotGranted, "a peer asks for what it is not granted", func(p Params) string {
			return fmt.Sprintf("%s dialled %s here and was refused: %s", or(p.Peer, "an unknown peer"), or(p.Service, "port "+p.Address), or(p.Detail, "it is not granted"))
		}, func(p Params) string {
			return fmt.Sprintf("if it may, run `postern peer allow %s %s` with its other services in the same list", or(p.Peer, "NAME"), or(p.Service, "SERVICES"))
		}},
		{StateDamaged, "a file of the state directory was damaged", func(p Params) string {
			return detail(or(p.File, "a file of the state directory")+" was damaged; the generation before takes its place, or it starts empty", p)
		}, func(Params) string {
			return "compare `postern peer list` with what you expect; look at the file named in keptAs, and at the disk"
		}},
		{StateExposed, "others may enter the state directory", func(p Params) string {
			return detail(or(p.File, "the state directory")+" was or is open to other users than the gateway's", p)
		}, func(Params) string {
			return "give the gateway a directory of its own in spec.stateDir; in Kubernetes see that no other pod mounts the volume"
		}},
		{NotStored, "what was taken away from a peer could not be stored", func(p Params) string {
			return detail(fmt.Sprintf("what %s has lost by command is not in %s yet and comes back when the gateway restarts", or(p.Peer, "a peer"), or(p.File, "the state directory")), p)
		}, func(Params) string {
			return "free space for spec.stateDir, then repeat the command or wait a minute"
		}},
		{StateNotKept, "the state cannot be kept outside of the pod", func(p Params) string {
			return detail(fmt.Sprintf("the Secrets that keep the state of %s cannot be read or written: tunnels go on, and what would change is refused", thisGateway), p)
		}, func(p Params) string {
			return fmt.Sprintf("see that the API server answers and that the gateway's Role has the rights that the chart gives it: `kubectl describe role%s`; then repeat what was refused", p.inNamespace())
		}},
		{EntryAside, "an entry of the state directory contradicts another", func(p Params) string {
			if p.PeerName != "" {
				return detail(fmt.Sprintf("a key that %s announced stands aside; %s goes on with the key that it has", p.PeerName, p.PeerName), p)
			}
			return detail(fmt.Sprintf("the entry %q of %s stands aside and counts for nothing; it stays in the file", p.Field, or(p.File, "a state file")), p)
		}, func(p Params) string {
			if p.PeerName != "" {
				return fmt.Sprintf("do not remove %s, which works; `postern key rotate` at %s announces another key, and this goes away", p.PeerName, p.PeerName)
			}
			return "compare `postern peer list` with what you expect; if the entry is a peer's, `postern peer remove NAME` drops it, together with a peer in the list that joined by that name; then it can join again"
		}},
		{NameTaken, "an object of a name that the gateway needs is somebody else's", func(p Params) string {
			return detail(fmt.Sprintf("%s bears a name that this gateway needs%s and not its labels: it is left as it is", p.placed("an object"), p.forPeer()), p)
		}, func(p Params) string {
			return fmt.Sprintf("rename the peer, or delete it if nobody needs it: `kubectl delete %s%s`", p.kubectlObject("KIND NAME"), p.inNamespace())
		}},
	}
}

func (p Params) forPeer() string {
	if p.Peer == "" {
		return ""
	}
	return " for peer " + p.Peer
}
