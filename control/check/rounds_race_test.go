//go:build race

package check

import "time"

// lossRuns is how often loss is measured; `make test-long` has all
const lossRuns = 60

// brokenFor is how long an API server fails, in rounds that each take TLS handshakes;
// `make test-long` has all
const brokenFor = 10 * time.Minute

// asked is how often a server is asked over an uncertain way; `make test-long` has all
const asked = 100
