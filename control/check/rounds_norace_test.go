//go:build !race

package check

import "time"

// lossRuns is how often loss is measured.
const lossRuns = 300

// brokenFor is how long an API server fails.
const brokenFor = time.Hour

// asked is how often a server is checked over an uncertain path.
const asked = 1000
