package ingest

import (
	"slices"
	"strings"
	"testing"
)

func TestTheHelpListsAllCustomaryNames(t *testing.T) {
	help := csvFormat.Help + " \n" + parquetFormat.Help
	for _, r := range append(maskRoles[:], sourceRole, destinationRole, itemRole, weightRole, idRole, labelRole, splitRole) {
		for _, name := range r.names {
			if columnKey(name) != name {
				t.Errorf("%s: no column can have that key", name)
			}
			if strings.Count(strings.ReplaceAll(help, "\n", " \n"), " "+name+" ") < 2 {
				t.Errorf("%s, for %s, is not in the help of csv and parquet", name, r.what)
			}
		}
		if i := slices.IndexFunc(strings.Split(help, "\n"), func(line string) bool { return len(line) > 120 }); i >= 0 {
			t.Errorf("line %d of the help is too long", i)
		}
	}
}
