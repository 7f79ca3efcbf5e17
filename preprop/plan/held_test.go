package plan

import (
	"testing"

	"github.com/hopfeed/hopfeed/format"
)

func TestHeldRowsTakeWhatTheirTableTakes(t *testing.T) {
	const rows = 1000
	padded := []format.FileEntry{{Path: "nodes/part-0.arrow", Size: 12288}} // chunks of short rows are mostly padding
	for name, m := range map[string]format.Manifest{
		"classes":       {Labels: 1, Splits: 2},
		"labels":        {Labels: 40, Splits: 1},
		"values":        {Labels: 3, LabelValues: true},
		"no labels":     {Splits: 3},
		"original ids":  {Labels: 1, OrigIDs: true},
		"one value":     {Labels: 1, LabelValues: true},
		"nothing known": {},
	} {
		m.Nodes, m.Kind, m.Files = rows, format.KindStore, padded
		table := m.NewRowTable(rows)
		want := int64(4*len(table.NodeID) + 4*len(table.Labels) + len(table.MultiLabels) + 4*len(table.LabelValues) +
			len(table.Splits) + 16*len(table.OrigID))
		if got := HeldBytes(&m, rows); got != want && !m.OrigIDs || got < want {
			t.Errorf("%s: %d bytes, want %d", name, got, want)
		}
	}
}
