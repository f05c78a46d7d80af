package chart

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/postern-dev/postern/tui/cell"
)

// Rate formats bytes per second in powers of 1000, as usual for links: "1.2 MB/s". A value that is
// no measurement is "-".
func Rate(bytesPerSecond float64) string {
	v, ok := measured(bytesPerSecond)
	if !ok {
		return "-"
	}
	return cell.Size(v) + "/s"
}

// scale is an axis of rates from zero to top, with a label each step.
type scale struct{ top, step float64 }

// leastTop keeps a few stray bytes from looking like a load, in bytes per second.
const leastTop = 1000

// scaleFor returns a scale for the largest value with at most n steps, each 1, 2, 2.5 or 5 times a
// power of ten. A largest value that is no measurement counts as zero.
func scaleFor(largest float64, n int) scale {
	// Division and logarithm are exact to some 1e-15; without the tolerance 0.3/3 would be more
	// than 0.1.
	const tolerance = 1 - 1e-9
	largest, _ = measured(largest)
	largest = max(largest, leastTop)
	rough := largest / float64(max(n, 1))
	unit := math.Pow(10, math.Floor(math.Log10(rough)))
	step := 10 * unit
	for _, m := range []float64{1, 2, 2.5, 5} {
		if m*unit >= rough*tolerance {
			step = m * unit
			break
		}
	}
	return scale{top: step * math.Ceil(largest/step*tolerance), step: step}
}

// label formats a value of the axis without insignificant digits.
func label(v float64) string {
	units := []string{"B", "kB", "MB", "GB", "TB", "PB", "EB"}
	i := 0
	for v >= 999.5 && i < len(units)-1 {
		v /= 1000
		i++
	}
	digits := fmt.Sprintf("%.2f", v)
	digits = strings.TrimSuffix(strings.TrimRight(digits, "0"), ".")
	if digits == "0" {
		return digits
	}
	return digits + " " + units[i] + "/s"
}

// ago formats how long ago something was.
func ago(d time.Duration) string {
	switch {
	case d <= 0:
		return "now"
	case d%time.Minute != 0:
		return fmt.Sprintf("-%ds", d/time.Second)
	case d%time.Hour != 0:
		return fmt.Sprintf("-%dm", d/time.Minute)
	}
	return fmt.Sprintf("-%dh", d/time.Hour)
}
