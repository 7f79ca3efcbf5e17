package ingest

import (
	"slices"
	"strings"
	"testing"
)

func TestImportListsAllCustomaryNames(t *testing.T) {
	list := ColumnNames()
	for _, r := range append(maskRoles[:], sourceRole, destinationRole, itemRole, weightRole, idRole, labelRole,
		splitRole) {
		for _, name := range r.names {
			if columnKey(name) != name {
				t.Errorf("%s: no column can have that key", name)
			}
			if !strings.Contains(strings.ReplaceAll(list, "\n", " "), " "+name+" ") {
				t.Errorf("%s, for %s, is not listed", name, r.what)
			}
		}
		if !strings.Contains(list, "\n"+r.what+" (--"+r.flag+")\n") {
			t.Errorf("%s is not listed", r.what)
		}
	}
	for _, text := range []string{list, csvFormat.Help, parquetFormat.Help, mtxFormat.Help, npyFormat.Help,
		ogbFormat.Help, igbFormat.Help, graphSAINTFormat.Help} {
		if i := slices.IndexFunc(strings.Split(text, "\n"), func(line string) bool { return len(line) > 120 }); i >= 0 {
			t.Errorf("line %d is too long", i)
		}
	}
}
