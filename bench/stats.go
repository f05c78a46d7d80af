package bench

import (
	"math"
	"slices"
)

// Summary summarizes a metric's values over the rounds.
type Summary struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	// Values are in the order of the rounds, without failed runs.
	Values []float64 `json:"values"`
}

// Summarize computes median and extremes. Without values all are 0.
func Summarize(values []float64) Summary {
	if len(values) == 0 {
		return Summary{}
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return Summary{
		Median: (sorted[(n-1)/2] + sorted[n/2]) / 2,
		Min:    sorted[0],
		Max:    sorted[n-1],
		Values: slices.Clone(values),
	}
}

// Quantile returns the q-quantile, interpolated linearly between two values; 0 without values.
func (s Summary) Quantile(q float64) float64 {
	sorted := slices.Sorted(slices.Values(s.Values))
	if len(sorted) == 0 {
		return 0
	}
	at := q * float64(len(sorted)-1)
	low := int(at)
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (sorted[high]-sorted[low])*(at-float64(low))
}

// Scaled returns the summary of the values multiplied by a positive factor.
func (s Summary) Scaled(by float64) Summary {
	out := Summary{Median: s.Median * by, Min: s.Min * by, Max: s.Max * by}
	for _, v := range s.Values {
		out.Values = append(out.Values, v*by)
	}
	return out
}

// Spread is half the range divided by the median: 0.1 is shown as "± 10 %".
func (s Summary) Spread() float64 {
	if s.Median == 0 {
		return 0
	}
	return (s.Max - s.Min) / 2 / s.Median
}

// Ratios divides round by round. It skips rounds in which a value is missing (NaN) or 0: a ratio
// across rounds would compare two states of the machine.
func Ratios(numerators, denominators []float64) []float64 {
	var out []float64
	for i := range min(len(numerators), len(denominators)) {
		if numerators[i] > 0 && denominators[i] > 0 {
			out = append(out, numerators[i]/denominators[i])
		}
	}
	return out
}

// Differences subtracts round by round. It skips rounds in which a value is missing (NaN).
func Differences(minuends, subtrahends []float64) []float64 {
	var out []float64
	for i := range min(len(minuends), len(subtrahends)) {
		if d := minuends[i] - subtrahends[i]; !math.IsNaN(d) {
			out = append(out, d)
		}
	}
	return out
}
