package bench

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestQuantilesLieBetweenValues(t *testing.T) {
	for _, c := range []struct {
		values  []float64
		q, want float64
	}{
		{nil, 0.25, 0}, {[]float64{7}, 0.25, 7}, {[]float64{5, 1, 3, 9, 7}, 0.25, 3}, {[]float64{4, 1, 3, 2}, 0.25, 1.75},
		{[]float64{4, 1, 3, 2}, 0.5, 2.5}, {[]float64{4, 1, 3, 2}, 0, 1}, {[]float64{4, 1, 3, 2}, 1, 4},
	} {
		if got := Summarize(c.values).Quantile(c.q); got != c.want {
			t.Errorf("quantile %g of %v: got %g, want %g", c.q, c.values, got, c.want)
		}
	}
}

func TestSummarizeTakesMedianAndExtremes(t *testing.T) {
	for _, c := range []struct {
		name   string
		values []float64
		want   Summary
		spread float64
	}{
		{"nothing", nil, Summary{}, 0},
		{"one", []float64{7}, Summary{7, 7, 7, []float64{7}}, 0},
		{"odd, unsorted", []float64{9, 1, 4}, Summary{4, 1, 9, []float64{9, 1, 4}}, 1},
		{"even: mean of the middle two", []float64{4, 1, 3, 10}, Summary{3.5, 1, 10, []float64{4, 1, 3, 10}}, 9.0 / 7},
		{"an outlier moves the extremes, not the median", []float64{2, 2, 2, 2, 200}, Summary{2, 2, 200, []float64{2, 2, 2, 2, 200}}, 49.5},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Summarize(c.values)
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("Summarize(%v): -want +got:\n%s", c.values, d)
			}
			if math.Abs(got.Spread()-c.spread) > 1e-12 {
				t.Errorf("Spread() = %v, want %v", got.Spread(), c.spread)
			}
		})
	}
}

func TestSummarizeLeavesItsArgumentAlone(t *testing.T) {
	values := []float64{3, 1, 2}
	s := Summarize(values)
	s.Values[0] = 99
	if d := cmp.Diff([]float64{3, 1, 2}, values); d != "" {
		t.Errorf("argument changed: -want +got:\n%s", d)
	}
}

func TestRatiosAreTakenWithinARound(t *testing.T) {
	for _, c := range []struct {
		name                    string
		numerators, denominator []float64
		want                    []float64
	}{
		{"each round by itself, whatever the machine did between", []float64{4, 40}, []float64{1, 10}, []float64{4, 4}},
		{"a missing numerator leaves the round out", []float64{0, 6}, []float64{1, 2}, []float64{3}},
		{"a missing denominator leaves the round out", []float64{5, 6}, []float64{0, 2}, []float64{3}},
		{"different lengths", []float64{5, 6}, []float64{1}, []float64{5}},
		{"nothing", nil, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Ratios(c.numerators, c.denominator)
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("Ratios(%v, %v): -want +got:\n%s", c.numerators, c.denominator, d)
			}
		})
	}
}
