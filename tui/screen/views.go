package screen

// views returns all views, in the order of their numbers.
func views() []view {
	return []view{newOverview(), newPeerView(), newThroughput(), newChecks(), newFlows(), newLog(), newTimeline(), newServices()}
}
