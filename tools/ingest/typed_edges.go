package ingest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/format"
)

// relationSource is the edges of a relation, with the columns of the nodes that they lead to. The nodes' graph, which
// gets features from them, keeps no column of edges.
type relationSource struct {
	Source
	nodes Source
}

func (s relationSource) Columns() []inputColumn {
	columns := columnsOf(s.Source, format.OfEdges)
	for i := range columns {
		columns[i].left = true
	}
	return append(columns, columnsOf(s.nodes, format.OfNodes)...)
}

// inEdges finds, for each type, the relations to it that nodes get features from: those with all or some of the columns
// that were asked for, and with times, if edges count by times. A relation to nodes without times makes no features,
// unless a time is given for all nodes.
func (s *typedSource) inEdges(o Options) (into map[string][]inEdges, notes []string, err error) {
	all := o.EdgeFeatures
	if all.Statistics == "" {
		return nil, nil, all.check()
	}
	statistics, list, named := strings.Cut(all.Statistics, ":")
	time, _, _ := strings.Cut(all.Time, ":")
	into = map[string][]inEdges{}
	seen := map[string]bool{} // flag and column
	for _, r := range s.relations {
		at := slices.IndexFunc(s.types, func(t typedPart[string]) bool { return t.id == r.id.Destination })
		source := relationSource{r.source, s.types[at].source}
		edges := columnsOf(source, format.OfEdges)
		has := func(flag, column string, columns []inputColumn) bool {
			_, err := findColumn(flag, column, columns)
			seen[flag+" "+column] = seen[flag+" "+column] || err == nil
			return err == nil
		}
		asked, loops := all, o.SelfLoops
		if r.id.Source != r.id.Destination {
			loops = KeepLoops // equal numbers are not the same node
		}
		of := len(edges)
		if time != "" {
			if !has("edge-time", time, edges) {
				continue
			}
			of--
		}
		if named {
			columns := slices.DeleteFunc(strings.Split(list, ","), func(name string) bool {
				return !has("edge-features", name, edges)
			})
			of, asked.Statistics = len(columns), statistics+":"+strings.Join(columns, ",")
		}
		if of == 0 && (named || statistics != statCount) {
			continue
		}
		if all.NodeTime != "" && !has("node-time", all.NodeTime, columnsOf(source, format.OfNodes)) {
			if asked.NodeTime = ""; all.Until == "" {
				notes = append(notes, fmt.Sprintf("relation %s makes no features: nodes of type %s have no column %s (--until "+
					"gives all such nodes a time)", r.id, r.id.Destination, all.NodeTime))
				continue
			}
		}
		into[r.id.Destination] = append(into[r.id.Destination], inEdges{source, asked, r.id.String(), loops})
	}
	for flag, columns := range map[string][]string{"edge-time": {time}, "node-time": {all.NodeTime},
		"edge-features": strings.Split(list, ",")} {
		for _, column := range columns {
			if column != "" && !seen[flag+" "+column] {
				return nil, nil, badOptions("--%s %s: no relation has such columns (tables have those of --edge-columns and "+
					"--node-columns)", flag, column)
			}
		}
	}
	if len(into) == 0 {
		return nil, nil, badOptions("--edge-features %s: no relation has columns that it can be of", all.Statistics)
	}
	for _, of := range into {
		slices.SortFunc(of, func(a, b inEdges) int { return strings.Compare(a.relation, b.relation) })
	}
	return into, notes, nil
}
