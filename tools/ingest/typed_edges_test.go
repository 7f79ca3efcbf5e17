package ingest

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/npy"
)

// typedEdges are the edges of a relation with columns: x, 2 numbers an edge, and time, unless it is nil.
type typedEdges struct {
	src, dst []int64
	x        []float32
	time     []int64
}

// typedMultigraph has accounts with times and banks without, and three relations, two of them with columns.
type typedMultigraph struct {
	nodes     map[string]int
	times     []int64 // of accounts
	feat      []float32
	relations map[string]*typedEdges
}

func randomTypedMultigraph(r *rand.Rand) *typedMultigraph {
	g := &typedMultigraph{nodes: map[string]int{"account": 30, "bank": 7}, relations: map[string]*typedEdges{}}
	for range g.nodes["account"] {
		g.times, g.feat = append(g.times, 1000+r.Int64N(60)), append(g.feat, r.Float32())
	}
	for name, n := range map[string]int{"account__pays__account": 400, "account__at__bank": 90, "bank__bank": 20} {
		e := &typedEdges{}
		ends, _ := parseRelation("", name)
		for range n {
			e.src = append(e.src, r.Int64N(int64(g.nodes[ends.Source])))
			e.dst = append(e.dst, r.Int64N(int64(g.nodes[ends.Destination])))
			e.x = append(e.x, float32(r.NormFloat64())*100+1e4, -float32(r.ExpFloat64()))
			e.time = append(e.time, 990+r.Int64N(70))
		}
		if g.relations[name] = e; name == "account__at__bank" {
			e.time = nil
		}
	}
	g.relations["bank__bank"].x = nil
	return g
}

func (g *typedMultigraph) layout() layout {
	accounts := int64(g.nodes["account"])
	l := layout{
		"meta.json": fmt.Appendf(nil, `{"target": "account", "node_types": {"account": %d, "bank": %d}}`, accounts,
			g.nodes["bank"]),
		"nodes/account/node_feat.npy": array(npy.Float32, g.feat, accounts, 1),
		"nodes/account/node_time.npy": array(npy.Int64, g.times, accounts),
	}
	for name, e := range g.relations {
		at, edges := "edges/"+name+"/", int64(len(e.src))
		l[at+"edge_index.npy"] = array(npy.Int64, slices.Concat(e.src, e.dst), 2, edges)
		if e.x != nil {
			l[at+"edge_x.npy"] = array(npy.Float32, e.x, edges, 2)
		}
		if e.time != nil {
			l[at+"edge_time.npy"] = array(npy.Int64, e.time, edges)
		}
	}
	return l
}

// statistics are those of column x of some edges to each node, by relation and statistic; and the counts.
func (e *typedEdges) statistics(nodes int, turned bool, counts func(edge int, node int64) bool,
	statistics ...string) (rows [][]float64) {
	ends := e.dst
	if turned {
		ends = e.src
	}
	for v := range int64(nodes) {
		var row []float64
		var of [2][]float64
		for i, to := range ends {
			if to == v && counts(i, v) {
				of[0], of[1] = append(of[0], float64(e.x[2*i])), append(of[1], float64(e.x[2*i+1]))
			}
		}
		for _, s := range statistics {
			if s == statCount {
				row = append(row, float64(len(of[0])))
				continue
			}
			row = append(row, twin(s, of[0]), twin(s, of[1]))
		}
		rows = append(rows, row)
	}
	return rows
}

// beside puts rows next to each other, behind the features that nodes have.
func beside(own []float32, parts ...[][]float64) (rows []float64) {
	for v := range parts[0] {
		if own != nil {
			rows = append(rows, float64(own[v]))
		}
		for _, part := range parts {
			rows = append(rows, part[v]...)
		}
	}
	return rows
}

func sameNumbers(t *testing.T, what string, got []float32, want []float64) {
	t.Helper()
	for i, v := range got {
		if math.Abs(float64(v)-want[i]) > 1e-6*max(1, math.Abs(want[i])) {
			t.Errorf("%s: number %d is %v, want %v", what, i, v, want[i])
			return
		}
	}
}

func TestColumnsOfRelationsBecomeFeaturesOfTheirDestinations(t *testing.T) {
	g := randomTypedMultigraph(rand.New(rand.NewPCG(27, 5)))
	o := Options{Duplicates: KeepDuplicates, Threads: 1,
		EdgeFeatures: EdgeFeatures{Statistics: "std,mean,count,max,sum:x"}}
	disk := g.layout().put(t)
	if _, err := importTyped(disk, UnknownDirection, o); err != nil {
		t.Fatal(err)
	}
	checkTyped(t, disk)
	statistics := []string{statStd, statMean, statMax, statSum, statCount}
	always := func(int, int64) bool { return true }
	pays, at := g.relations["account__pays__account"], g.relations["account__at__bank"]
	want := map[string][]float64{ // relations in the order of their names, with the reverses that are added
		"account": beside(g.feat, pays.statistics(30, false, always, statistics...),
			pays.statistics(30, true, always, statistics...), at.statistics(30, true, always, statistics...)),
		"bank": beside(nil, at.statistics(7, false, always, statistics...)),
	}
	for nodeType, numbers := range want {
		sameNumbers(t, nodeType, featuresOf(t, disk, nodeType, len(numbers)), numbers)
	}
	d, err := format.OpenGraph(disk, format.NodesDir("out", "bank"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if said := d.Manifest.Input[format.EdgeFeatures]; said != "account__at__bank: std,mean,max,sum of edge_x (2); count" {
		t.Errorf("features of banks are %q", said)
	}
	before := files(t, disk, "out")
	for _, memory := range []int64{0, 72 << 20} {
		o.Threads, o.MemoryBytes = 3, memory
		again := g.layout().put(t)
		if _, err := importTyped(again, UnknownDirection, o); err != nil {
			t.Fatal(err)
		}
		sameFiles(t, "with other threads and memory", files(t, again, "out"), before)
	}
	// Relations keep their columns as without features.
	o.EdgeFeatures = EdgeFeatures{}
	plain := g.layout().put(t)
	if _, err := importTyped(plain, UnknownDirection, o); err != nil {
		t.Fatal(err)
	}
	for name, data := range files(t, plain, "out") {
		if strings.HasPrefix(name, "out/relations/") && before[name] != data {
			t.Errorf("%s differs from an import without features of edges", name)
		}
	}
}

func TestRelationsMakeNoFeaturesOfTheFuture(t *testing.T) {
	r := rand.New(rand.NewPCG(27, 6))
	g := randomTypedMultigraph(r)
	banks := g.relations["bank__bank"]
	banks.x = make([]float32, 2*len(banks.src))
	o := Options{Duplicates: KeepDuplicates, EdgeFeatures: EdgeFeatures{Statistics: "mean,count,max", Time: "time",
		NodeTime: "time", Windows: []string{"20"}}}
	run := func() ([]float32, *Result) {
		disk := g.layout().put(t)
		result, err := importTyped(disk, Directed, o)
		if err != nil {
			t.Fatal(err)
		}
		return featuresOf(t, disk, "account", 30*6), result
	}
	pays := g.relations["account__pays__account"]
	inTime := func(i int, v int64) bool { return pays.time[i] < g.times[v] && g.times[v]-pays.time[i] <= 20 }
	got, result := run()
	sameNumbers(t, "accounts", got, beside(g.feat, pays.statistics(30, false, inTime, statMean, statMax, statCount)))
	if note := "relation bank__bank makes no features: nodes of type bank have no column time (--until gives all such " +
		"nodes a time)"; !slices.Contains(result.Notes, note) {
		t.Errorf("notes %q", result.Notes)
	}
	changed := 0
	for i, v := range pays.dst {
		if pays.time[i] >= g.times[v] {
			pays.x[2*i], pays.time[i], changed = 1e30, pays.time[i]+r.Int64N(9), changed+1
		}
	}
	if again, _ := run(); changed < 50 || !slices.Equal(again, got) {
		t.Errorf("%d edges of the future changed a row", changed)
	}
	// With a time for all banks, their edges count, whatever columns they have.
	banks.x = nil
	o.EdgeFeatures = EdgeFeatures{Statistics: "count", Time: "time", NodeTime: "time", Until: "1010"}
	disk := g.layout().put(t)
	if _, err := importTyped(disk, Directed, o); err != nil {
		t.Fatal(err)
	}
	banks.x = make([]float32, 2*len(banks.src))
	sameNumbers(t, "banks", featuresOf(t, disk, "bank", 7), beside(nil, banks.statistics(7, false,
		func(i int, _ int64) bool { return banks.time[i] < 1010 }, statCount)))
}

func TestTypedTablesKeepColumnsAndMakeFeaturesOfThem(t *testing.T) {
	text, parquet := typedText(), typedParquet()
	text["edges/paper__author.csv"] = []byte("author,paper,share,at\n900000000000000000000,p0,0.5,1\nAda,p2,2,2\n" +
		"Ada,p1,4,3\nAda,p1,8,9\n")
	text["nodes/author.csv.gz"] = gzipped("author_id,age,until\n900000000000000000000,7,2\nAda,8,3\n")
	parquet["edges/paper__author.parquet"] = parquetFile(parquetColumn{"author", []int64{1 << 60, 3, 3, 3}},
		parquetColumn{"paper", []string{"p0", "p2", "p1", "p1"}}, parquetColumn{"share", []float32{0.5, 2, 4, 8}},
		parquetColumn{"at", []int64{1, 2, 3, 9}})
	parquet["nodes/author.parquet"] = parquetFile(parquetColumn{"author_id", []int64{1 << 60, 3}},
		parquetColumn{"age", []float32{7, 8}}, parquetColumn{"until", []int64{2, 3}})
	for kind, input := range map[string]layout{"csv": text, "parquet": parquet} {
		columns := TableOptions{NodeFiles: NodeFiles{Columns: Columns{Edge: []string{"share", "at:int64"},
			Node: []string{"until:int64"}}}}
		run := Options{Duplicates: KeepDuplicates, EdgeFeatures: EdgeFeatures{Statistics: "sum,count:share", Time: "at",
			NodeTime: "until"}}
		disk := input.put(t)
		if _, err := importTypedTables(disk, kind, columns, TypedOptions{}, run); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		checkTyped(t, disk)
		if got := featuresOf(t, disk, "author", 6); !slices.Equal(got, []float32{7, 0.5, 1, 8, 2, 1}) {
			t.Errorf("%s: features of authors %v", kind, got)
		}
		relation := format.Relation{Source: "paper", Destination: "author"}
		d, err := format.OpenRelation(disk, format.RelationDir("out", relation))
		if err != nil {
			t.Fatal(err)
		}
		if c := d.Manifest.Columns; len(c) != 2 || c[0].Name != "edge_at" || c[1].Name != "edge_share" {
			t.Errorf("%s: columns %v", kind, c)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		for says, o := range map[string]Columns{
			"--edge-columns price: no table":  {Edge: []string{"share", "price"}},
			"--node-columns height: no table": {Node: []string{"height"}},
		} {
			_, err := importTypedTables(input.put(t), kind, TableOptions{NodeFiles: NodeFiles{Columns: o}}, TypedOptions{},
				Options{})
			if !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: want %q: %v", kind, says, err)
			}
		}
	}
}

func TestFeaturesOfRelationsThatMakeNoSenseAreRefused(t *testing.T) {
	g := randomTypedMultigraph(rand.New(rand.NewPCG(1, 2)))
	for says, o := range map[string]EdgeFeatures{
		"--edge-features y: no relation":                                  {Statistics: "sum:x,y"},
		"--edge-time then: no relation":                                   {Statistics: "sum", Time: "then", Until: "1"},
		"--node-time t: no relation":                                      {Statistics: "max", Time: "time", NodeTime: "t"},
		"need --edge-features":                                            {Time: "time"},
		"relation account__pays__account: bad options: --edge-features m": {Statistics: "median:x"},
		"relation account__pays__account: bad options: --until noon":      {Statistics: "max", Time: "time", Until: "noon"},
	} {
		disk := g.layout().put(t)
		_, err := importTyped(disk, Directed, Options{Duplicates: KeepDuplicates, EdgeFeatures: o})
		if !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), says) || len(files(t, disk, "out")) > 0 {
			t.Errorf("want %q: %v", says, err)
		}
	}
	all := Options{EdgeFeatures: EdgeFeatures{Statistics: "sum:x"}}
	g.relations["account__pays__account"].x[2*17+1] = float32(math.NaN())
	disk := g.layout().put(t)
	_, err := importTyped(disk, Directed, all)
	refused(t, "a value that is not finite", err, "in/edges/account__pays__account/edge_x.npy: row 17, column edge_x")
	if left := slices.Sorted(maps.Keys(files(t, disk, "out"))); len(left) > 0 {
		t.Errorf("files are left: %q", left)
	}
}

func TestAnImportOfFeaturesOfRelationsThatFailedIsMadeAnew(t *testing.T) {
	g := randomTypedMultigraph(rand.New(rand.NewPCG(3, 3)))
	o := Options{EdgeFeatures: EdgeFeatures{Statistics: "sum:x"}, Threads: 1}
	input, seen := g.layout().put(t), vfs.Disks{}
	for n := int64(1); ; n += 11 {
		disk := input.Clone()
		failing := vfs.NewFault(disk)
		failing.FailAt(n, syscall.EIO)
		_, err := importTyped(failing, Directed, o)
		if failing.Operations() < n {
			if err != nil || n < 100 {
				t.Fatalf("%d operations: %v", n-1, err)
			}
			break
		}
		if !seen.Add(disk, 0) {
			continue
		}
		if _, err := importTyped(disk, Directed, o); err != nil && !errors.Is(err, format.ErrExists) {
			t.Fatalf("after failing operation %d: %v", n, err)
		}
		checkTyped(t, disk)
	}
}

// typedTable is a relation whose table has the columns x and at.
type typedTable struct {
	src, dst, at []int64
	x            []float64
}

// randomTables are types and relations of all sizes as tables, with x in two relations: whole numbers in one, fractions
// in the other. Edges come several times, and the last node of a type has none.
func randomTables(r *rand.Rand) (sizes map[string]int, opened map[string][]int64, all map[string]*typedTable,
	l layout) {
	sizes, opened = map[string]int{"user": 1 + r.IntN(40), "item": 1, "shop": 2 + r.IntN(9)}, map[string][]int64{}
	all, l = map[string]*typedTable{}, layout{}
	for name, n := range sizes {
		var b strings.Builder
		b.WriteString("id,opened,label\n")
		for i := range n {
			opened[name] = append(opened[name], 100+r.Int64N(50))
			fmt.Fprintf(&b, "%s%d,%d,%d\n", name, i, opened[name][i], i%2)
		}
		l["nodes/"+name+".csv"] = []byte(b.String())
	}
	edges := map[string]int{"user__knows__user": r.IntN(300), "user__visits__shop": 90, "item__in__shop": 0,
		"shop__sells__item": r.IntN(2)}
	for name, n := range edges {
		ends, _ := parseRelation("", name)
		e := &typedTable{}
		var b strings.Builder
		b.WriteString("source,destination,x,at\n")
		for range n {
			u, v := r.IntN(sizes[ends.Source]), r.IntN(max(1, sizes[ends.Destination]-1))
			x := float64(r.IntN(2000) - 1000)
			if ends.Name == "visits" {
				x = float64(float32(x * math.Pi))
			}
			e.src, e.dst, e.x, e.at = append(e.src, int64(u)), append(e.dst, int64(v)), append(e.x, x),
				append(e.at, 80+r.Int64N(80))
			fmt.Fprintf(&b, "%s%d,%s%d,%v,%d\n", ends.Source, u, ends.Destination, v, x, e.at[len(e.at)-1])
		}
		l["edges/"+name+".csv"], all[name] = []byte(b.String()), e
	}
	return sizes, opened, all, l
}

func TestFeaturesOfTablesOfAnySizeAreThoseOfALoop(t *testing.T) {
	statistics := []string{statMean, statSum, statMax, statStd}
	columns := TableOptions{NodeFiles: NodeFiles{Columns: Columns{Edge: []string{"x", "at:int64"},
		Node: []string{"opened:int64"}}}}
	run := Options{Direction: Directed, Duplicates: KeepDuplicates, Threads: 1, EdgeFeatures: EdgeFeatures{
		Statistics: strings.Join(statistics, ",") + ",count:x", Time: "at", NodeTime: "opened",
		Windows: []string{"9", "all"}}}
	for seed := range uint64(12) {
		sizes, opened, all, l := randomTables(rand.New(rand.NewPCG(seed, 27)))
		disk := l.put(t)
		if _, err := importTypedTables(disk, "csv", columns, TypedOptions{Target: "user"}, run); err != nil {
			t.Fatal(seed, err)
		}
		checkTyped(t, disk)
		into := map[string][]string{"user": {"user__knows__user"}, "item": {"shop__sells__item"},
			"shop": {"item__in__shop", "user__visits__shop"}}
		for nodeType, relations := range into {
			var want []float64
			for v := range int64(sizes[nodeType]) {
				for _, name := range relations {
					e, counts := all[name], []float64(nil)
					for _, window := range []int64{9, math.MaxInt64} {
						var values []float64
						for i, to := range e.dst {
							if before := opened[nodeType][v] - e.at[i]; to == v && before > 0 && before <= window {
								values = append(values, e.x[i])
							}
						}
						for _, s := range statistics {
							want = append(want, twin(s, values))
						}
						counts = append(counts, float64(len(values)))
					}
					want = append(want, counts...)
				}
			}
			sameNumbers(t, fmt.Sprint(nodeType, " of seed ", seed), featuresOf(t, disk, nodeType, len(want)), want)
		}
		if seed > 0 {
			continue
		}
		whole := files(t, disk, "out")
		for n := int64(1); ; n += 23 { // an import that a failing disk has ended is made anew, to the same bytes
			disk := l.put(t)
			failing := vfs.NewFault(disk)
			failing.FailAt(n, syscall.EIO)
			if _, err := importTypedTables(failing, "csv", columns, TypedOptions{Target: "user"}, run); err == nil {
				break
			}
			if _, err := importTypedTables(disk, "csv", columns, TypedOptions{Target: "user"}, run); err != nil {
				t.Fatalf("after failing operation %d: %v", n, err)
			}
			sameFiles(t, fmt.Sprint("after failing operation ", n), files(t, disk, "out"), whole)
		}
	}
}
