//go:build race

package check

import "time"

// lossRuns is how often loss is measured; `make test-long` runs all.
const lossRuns = 60

// brokenFor is how long an API server fails, in rounds that each take TLS handshakes; `make
// test-long` runs all.
const brokenFor = 10 * time.Minute

// asked is how often a server is checked over an uncertain path; `make test-long` runs all.
const asked = 100
