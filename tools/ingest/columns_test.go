package ingest

import (
	"strconv"
	"strings"
	"testing"
)

// named is the header of columns, separated by commas.
func named(names string) header { return header{names: strings.Split(names, ","), named: true} }

func TestEdgeColumnsAreChosenByTheNamesThatAreInUse(t *testing.T) {
	for _, c := range []struct {
		name, header string
		o            Columns
		want         string // what is taken, or what the refusal says, separated by |
	}{
		{"pandas with its index", ",u,v", Columns{}, `source = u, destination = v; left out: "" (the row index)`},
		{"pandas with an unnamed index and a weight", "Unnamed: 0,source,target,weight", Columns{},
			`source = source, destination = target, weight = weight; left out: "Unnamed: 0" (the row index)`},
		{"networkx", "source,target", Columns{}, "source = source, destination = target"},
		{"Neo4j", ":START_ID,:END_ID,:TYPE", Columns{}, "source = :START_ID, destination = :END_ID; left out: :TYPE"},
		{"Neo4j with groups of ids and typed properties", ":START_ID(Person),weight:float,:END_ID(Person)", Columns{},
			"source = :START_ID(Person), destination = :END_ID(Person), weight = weight:float"},
		{"Gephi", "Source,Target,Type,Weight", Columns{},
			"source = Source, destination = Target, weight = Weight; left out: Type"},
		{"Gephi, in full", "Source,Target,Type,Id,Label,timeset,Weight", Columns{},
			"source = Source, destination = Target, weight = Weight; left out: Type, Id, Label, timeset"},
		{"SNAP's comment as a header", "FromNodeId,ToNodeId", Columns{}, "source = FromNodeId, destination = ToNodeId"},
		{"DGL", "src_id,dst_id,label,feat", Columns{}, "source = src_id, destination = dst_id; left out: label, feat"},
		{"GraphFrames", "src,dst,relationship", Columns{}, "source = src, destination = dst; left out: relationship"},
		{"numbered ends", "id_1,id_2", Columns{}, "source = id_1, destination = id_2"},
		{"Elliptic", "txId1,txId2", Columns{}, "source = txId1, destination = txId2"},
		{"citations", "citing,cited", Columns{}, "source = citing, destination = cited"},
		{"u, v and w", "u,v,w", Columns{}, "source = u, destination = v, weight = w"},
		{"the other way round", "to,from", Columns{}, "source = from, destination = to"},
		{"spaces, points and capitals", "Source Node,TARGET.NODE,edge-weight", Columns{},
			`source = "Source Node", destination = TARGET.NODE, weight = edge-weight`},
		{"flags", "paper_a,paper_b,strength", Columns{Source: "paper_b", Destination: "PAPER A", Weight: "strength"},
			"source = paper_b, destination = paper_a, weight = strength"},
		{"flags by number", "paper_a,paper_b,strength", Columns{Source: "1", Destination: "2"},
			"source = paper_a, destination = paper_b; left out: strength"},
		{"a name that is a number comes first", "2,1", Columns{Source: "1", Destination: "2"},
			"source = 1, destination = 2"},
		{"a flag for one end", "src,from,dst", Columns{Source: "from"},
			"source = from, destination = dst; left out: src"},
		{"no weights", "u,v,w", Columns{Weight: None}, "source = u, destination = v; left out: w"},

		{"names that say nothing", "paper_a,paper_b", Columns{}, "--source-column|paper_a, paper_b"},
		{"one end alone", "u,b", Columns{}, "--destination-column|u, b"},
		{"two sources", "src,from,dst", Columns{}, "columns src, from|--source-column"},
		{"two destinations", "u,v,to", Columns{}, "columns v, to|--destination-column"},
		{"a name twice", "u,u,v", Columns{}, "columns u, u|--source-column"},
		{"two weights", "u,v,w,weight", Columns{}, "columns w, weight|--weight-column"},
		{"a flag for a column that is not there", "u,v", Columns{Source: "x"},
			"--source-column x: there is no such column (the columns are u, v)"},
		{"a flag for a name that is there twice", "a,A,v", Columns{Source: "_a"}, "2 columns|--source-column"},
		{"a number beyond", "u,v", Columns{Weight: "3"}, "--weight-column 3: there is no such column"},
		{"one column for both", "u,v", Columns{Source: "v"}, "taken twice"},
	} {
		got, err := named(c.header).edgeColumns(c.o)
		said := ""
		if err != nil {
			said = err.Error()
		} else {
			said = strings.TrimPrefix(got.note("", got.taken(), got.except(got.columns())), ": ")
			if said == c.want {
				continue
			}
		}
		for _, part := range strings.Split(c.want, "|") {
			if err == nil || !strings.Contains(said, part) {
				t.Errorf("%s (%s): %s, want %s", c.name, c.header, said, c.want)
			}
		}
	}
	for text, c := range map[string]struct {
		n int
		o Columns
	}{
		"source = column 1, destination = column 2":                                        {2, Columns{}},
		"source = column 1, destination = column 2, weight = column 3":                     {3, Columns{}},
		"source = column 1, destination = column 2; left out: column 3, column 4":          {4, Columns{}},
		"source = column 3, destination = column 2, weight = column 1":                     {3, Columns{Source: "3"}},
		"source = column 1, destination = column 2, weight = column 4; left out: column 3": {4, Columns{Weight: "4"}},
	} {
		h := numbered(c.n)
		got, err := h.edgeColumns(c.o)
		if err != nil || got.note("", got.taken(), got.except(got.columns())) != ": "+text {
			t.Errorf("%d columns without names: %s, %v, want %s", c.n, got.taken(), err, text)
		}
	}
	if _, err := numbered(3).edgeColumns(Columns{Source: "from"}); err == nil ||
		!strings.Contains(err.Error(), "number of a column") {
		t.Error(err)
	}
	if c, err := named("userId,movieId,rating,timestamp").edgeColumns(Columns{}); err != nil || !c.items ||
		c.weight >= 0 {
		t.Errorf("users and movies: %+v, %v", c, err)
	}
	if c, err := named("user,friend").edgeColumns(Columns{}); err != nil || c.items {
		t.Errorf("users and friends: %+v, %v", c, err)
	}
}

func FuzzColumns(f *testing.F) {
	f.Add(",u,v", "u", "f*")
	f.Add("A", "", "1")
	f.Add(":START_ID(a),x:END_ID,w:float", "2", "[a")
	f.Add("node_id,label,train_mask,feat", "", "*")
	f.Add("Unnamed: 0,id,y,\xff,id", "none", "\\")
	f.Fuzz(func(t *testing.T, names, one, list string) {
		for _, h := range []header{named(names), numbered(len(strings.Split(names, ",")))} {
			if c, err := h.edgeColumns(Columns{Source: one, Weight: list}); err == nil {
				if said := c.note("", c.taken(), c.except(c.columns())); !printable(said) || c.source == c.destination {
					t.Errorf("%q: %q", names, said)
				}
			}
			for _, o := range []Columns{{ID: one, Features: []string{list}},
				{Label: []string{one}, Split: []string{list}}, {}} {
				c, err := h.nodeColumns(ofText(strings.Repeat("N", len(h.names))), o,
					allParts)
				if err != nil {
					continue
				}
				if said := c.note("", c.taken(), c.left()); !printable(said) {
					t.Errorf("%q: %q", names, said)
				}
				for _, i := range c.features {
					if explicit := len(o.Features) > 0 && (h.names[i] == list ||
						columnKey(h.names[i]) == columnKey(list) || byNumber(list, i)); h.named &&
						givesAway(h.names[i]) && !explicit {
						t.Errorf("%q: column %q is a feature of %+v", names, h.names[i], o)
					}
				}
			}
		}
	})
}

// byNumber tells whether a flag asks for a column by its number.
func byNumber(wanted string, column int) bool {
	n, err := strconv.Atoi(wanted)
	return err == nil && n == column+1
}

// ofText is what the columns of text tables can be, where L is a list, N a number
// and T text.
func ofText(kinds string) (out []columnValues) {
	for _, k := range kinds {
		out = append(out, columnValues{id: k != 'L', number: k == 'N', list: k == 'L', what: "text"})
	}
	return out
}

func TestNodeColumnsAreChosenByTheNamesThatAreInUse(t *testing.T) {
	all := allParts
	for _, c := range []struct {
		name, header, kinds string
		o                   Columns
		want                parts
		says                string
	}{
		{"DGL", "node_id,label,train_mask,val_mask,test_mask,feat", "NNTTTL", Columns{}, all,
			"id = node_id, label = label, split = train_mask, val_mask, test_mask, features = feat"},
		{"columns of features", "id,y,split,f0,f1,f2,f3", "NNTNNNN", Columns{}, all,
			"id = id, label = y, split = split, features = 4 columns from f0 to f3"},
		{"names that Parquet tables have had", "nodeid,class,train_mask,f0", "NNTN", Columns{}, all,
			"id = nodeid, label = class, split = train_mask, features = f0"},
		{"text between features", "id,f0,title,f1", "NNTN", Columns{}, all,
			"id = id, features = f0, f1; left out: title"},
		{"Neo4j", "paper:ID(Paper),year:int,:LABEL", "TNT", Columns{}, all,
			"id = paper:ID(Paper), label = :LABEL, features = year:int"},
		{"pandas with its index", ",id,x0,x1", "NNNN", Columns{}, all,
			`id = id, features = x0, x1; left out: "" (the row index)`},
		{"what gives labels away is left out", "id,label,f0,label_19,oldClass,class2,y3,kFold,graph_id,index",
			"NNNNNNNNNN", Columns{}, all, "id = id, label = label, features = f0; left out: label_19, oldClass, " +
				"class2, y3, kFold, graph_id, index (the row index)"},
		{"features alone leave labels out", "id,label,split,f0", "NNNN", Columns{}, features,
			"id = id, features = f0; left out: label, split"},
		{"a label that a flag names is no feature of another file", "id,kind,f0", "NNN",
			Columns{Label: []string{"kind"}}, features, "id = id, features = f0; left out: kind"},
		{"labels alone", "node_id,label,year", "NNN", Columns{}, labels,
			"id = node_id, label = label; left out: year"},
		{"a sole other column is the label", "node_id,kind", "NT", Columns{}, labels,
			"id = node_id, label = kind"},
		{"a sole other column is the split", "node_id,role", "NT", Columns{}, splits,
			"id = node_id, split = role"},
		{"several labels", "id,l0,l1,l2", "NNNN", Columns{Label: []string{"l*"}}, labels,
			"id = id, label = l0, l1, l2"},
		{"several splits", "id,s0,s1", "NTT", Columns{Split: []string{"s0", "s1"}}, splits,
			"id = id, split = s0, s1"},
		{"chosen features", "id,a1,a2,b", "NNNN", Columns{Features: []string{"b", "A?"}}, all,
			"id = id, features = a1, a2, b"},
		{"a feature that is the label, in full", "id,label,f0", "NNN", Columns{Features: []string{"label", "f0"}}, all,
			"id = id, label = label, features = label, f0"},
		{"a glob takes no labels", "id,label,f0", "NNN", Columns{Features: []string{"*"}}, all,
			"id = id, label = label, features = f0"},
		{"rows that are nodes, as a flag says", "kind,f0,f1", "NNN", Columns{ID: None}, all,
			"id = the number of the row, features = kind, f0, f1"},
		{"rows that are nodes, as no column can be the id", "label,x", "NL", Columns{}, all,
			"id = the number of the row, label = label, features = x"},
		{"a list and columns", "id,x,year", "NLN", Columns{}, all, "id = id, features = x; left out: year"},

		{"no id", "paper,paper2,f0,f1", "NNNN", Columns{ID: "none such"}, all, "--id-column none such"},
		{"an id under another name", "nr,f0", "NN", Columns{}, all, "--id-column NAME|--id-column none|nr, f0"},
		{"an index that may be the id", ",label,f0", "NNN", Columns{}, all, "--id-column NAME"},
		{"two ids", "id,node_id,f0", "NNN", Columns{}, all, "columns id, node_id|--id-column"},
		{"two labels", "id,label,class", "NNN", Columns{}, all, "columns label, class|--label-column"},
		{"a split and masks", "id,split,train_mask", "NNN", Columns{}, all, "columns split, train_mask|--split-column"},
		{"two masks of one part", "id,val_mask,valid_mask", "NNN", Columns{}, all, "columns val_mask, valid_mask"},
		{"no label", "id,a,b", "NNN", Columns{}, labels, "--label-column NAME|id, a, b"},
		{"no split", "id,a,b", "NNN", Columns{}, splits, "--split-column NAME"},
		{"no features", "id,label,title", "NNT", Columns{}, features, "--feature-columns"},
		{"features of text", "id,title", "NT", Columns{Features: []string{"title"}}, all, "title is text"},
		{"two lists", "id,x,z", "NLL", Columns{}, all, "columns x, z|--feature-columns"},
		{"a list beside a number", "id,x,z", "NLN", Columns{Features: []string{"x", "z"}}, all, "column x is a list"},
		{"a glob that matches nothing", "id,f0", "NN", Columns{Features: []string{"g*"}}, all,
			"--feature-columns g*: no column matches"},
		{"a glob that matches labels alone", "id,label", "NN", Columns{Features: []string{"la*"}}, all,
			"name them in full"},
		{"a broken glob", "id,label", "NN", Columns{Features: []string{"[a"}}, all, "not complete"},
	} {
		got, err := named(c.header).nodeColumns(ofText(c.kinds), c.o, c.want)
		said := ""
		if err != nil {
			said = err.Error()
		} else {
			said = strings.TrimPrefix(got.note("", got.taken(), got.left()), ": ")
			if said == c.says {
				continue
			}
		}
		for _, part := range strings.Split(c.says, "|") {
			if err == nil || !strings.Contains(said, part) {
				t.Errorf("%s (%s): %s, want %s", c.name, c.header, said, c.says)
			}
		}
	}
}
