package plan

import "testing"

func TestRangesOfColumnsAreEven(t *testing.T) {
	for _, c := range [][3]int{{256, 93, 88}, {256, 96, 96}, {128, 86, 64}, {128, 127, 64}, {128, 64, 64},
		{100, 99, 64}, {100, 51, 52 - 4}, {10, 3, 3}, {9, 5, 4}, {5, 1, 1}, {7, 6, 4}} {
		got := rangeColumns(c[0], c[1])
		if got != c[2] || got > c[1] {
			t.Errorf("%d columns, %d at most: %d, want %d", c[0], c[1], got, c[2])
		}
	}
}
