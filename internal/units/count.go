package units

import (
	"fmt"
	"strings"
)

// Count is a number of things, in words.
func Count(n int64, thing string) string {
	switch {
	case n == 1:
		return "1 " + thing
	case strings.HasSuffix(thing, "s"), strings.HasSuffix(thing, "tch"):
		thing += "e"
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
