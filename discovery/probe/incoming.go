package probe

// incoming is the receiving side of one peer.
type incoming struct {
	initial *keys
	// heard says that boot is known.
	heard  bool
	boot   uint64 // the highest seen
	window window
	// accepted are the keys of the previous generation, of the one that the newest
	// request stated, and of the next; nil where there are none.
	accepted [3]*keys
}

// take checks an authenticated request for replay and notes it. newest says that it is
// the newest of the peer's requests, rebooted that its boot id replaces a lower one. The
// reason is empty when there is none to refuse it.
func (in *incoming) take(a attribute) (newest, rebooted bool, reason Reason) {
	if in.heard && a.boot < in.boot {
		return false, false, ReasonStaleBoot
	}
	if !in.heard || a.boot > in.boot {
		rebooted = in.heard
		in.restart(a.boot)
	}
	fresh, newest := in.window.take(a.counter)
	if !fresh {
		return false, false, ReasonReplay
	}
	return newest, rebooted, ""
}

// restart begins anew with a boot id.
func (in *incoming) restart(boot uint64) {
	in.heard, in.boot, in.window = true, boot, window{}
}

// follow gives the keys to accept from now on, when the newest request stated the
// generation.
func (in *incoming) follow(s schedule, generation uint16) [3]*keys {
	find := func(g uint16) *keys {
		for _, k := range in.accepted {
			if k != nil && k.boot == in.boot && k.generation == g {
				return k
			}
		}
		return nil
	}
	orMake := func(g uint16) *keys {
		if k := find(g); k != nil {
			return k
		}
		return s.generation(false, in.boot, g)
	}
	return [3]*keys{find(generation - 1), orMake(generation), orMake(generation + 1)}
}
