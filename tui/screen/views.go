package screen

// views are the six, in the order of their numbers.
func views() []view {
	return []view{newOverview(), newPeerView(), newThroughput(), newChecks(), newFlows(), newLog()}
}
