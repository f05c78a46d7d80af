package probe

import "slices"

// incoming is the receiving side for one peer.
type incoming struct {
	initial *keys
	// heard is whether boot is known.
	heard  bool
	boot   uint64 // the highest seen, or that of an earlier start that has outlived it
	window window
	// previous are the previous boot ids, the latest last and at most maxPrevious: a copy of the
	// gateway may itself be restarted.
	previous []previousBoot
	// accepted are the keys of the previous generation, of the one that the newest request
	// stated, and of the next; nil if there are none.
	accepted [3]*keys
}

const maxPrevious = 4

// previousBoot is what is kept of a peer's boot id once another replaces it.
type previousBoot struct {
	boot   uint64
	window window
}

// take checks an authenticated request for replay and records it. newest is whether it is the
// newest of the peer's requests, rebooted whether its boot id replaces a lower one. The reason is
// empty if it is accepted.
func (in *incoming) take(a attribute) (newest, rebooted bool, reason Reason) {
	if in.heard && a.boot < in.boot {
		return false, false, ReasonStaleBoot
	}
	// If an earlier start counts again, packets of the later one may still be replayed.
	if i := in.wasBoot(a.boot); i >= 0 {
		seen := in.previous[i].window
		if fresh, _ := seen.take(a.counter); !fresh {
			return false, false, ReasonReplay
		}
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

// restart switches to another boot id. What was seen of a previous one is still known.
func (in *incoming) restart(boot uint64) {
	next, before := previousBoot{boot: boot}, in.previous
	if i := in.wasBoot(boot); i >= 0 {
		next = before[i]
		before = slices.Delete(before, i, i+1)
	}
	if in.heard {
		before = append(before, previousBoot{in.boot, in.window})
	}
	in.previous = slices.Delete(before, 0, max(len(before)-maxPrevious, 0))
	in.heard, in.boot, in.window = true, next.boot, next.window
}

func (in *incoming) wasBoot(boot uint64) int {
	return slices.IndexFunc(in.previous, func(p previousBoot) bool { return p.boot == boot })
}

// stillRuns reports whether a request has a previous boot id and was not seen before: then its
// sender still runs. A request with an older boot id cannot be distinguished from a replay.
func (in *incoming) stillRuns(a attribute) bool {
	i := in.wasBoot(a.boot)
	if i < 0 {
		return false
	}
	fresh, _ := in.previous[i].window.take(a.counter)
	return fresh
}

// follow returns the keys to accept once the newest request stated the generation.
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
