package cell

import "strings"

// CompareNames compares names without regard to case, and numbers in them by value.
func CompareNames(a, b string) int {
	x, y := strings.ToLower(a), strings.ToLower(b)
	for x != "" && y != "" {
		n, m := digits(x), digits(y)
		if n == 0 || m == 0 {
			if x[0] != y[0] {
				return int(x[0]) - int(y[0])
			}
			x, y = x[1:], y[1:]
			continue
		}
		i, j := strings.TrimLeft(x[:n], "0"), strings.TrimLeft(y[:m], "0")
		if len(i) != len(j) {
			return len(i) - len(j)
		}
		if c := strings.Compare(i, j); c != 0 {
			return c
		}
		x, y = x[n:], y[m:]
	}
	if len(x) != len(y) {
		return len(x) - len(y)
	}
	return strings.Compare(a, b)
}

// digits returns how many digits a text begins with.
func digits(s string) int {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return i
		}
	}
	return len(s)
}
