package screen

// views are all, in the order of their numbers.
func views() []view {
	return []view{newOverview(), newPeerView(), newThroughput(), newChecks(), newFlows(), newLog(), newTimeline(), newServices()}
}
