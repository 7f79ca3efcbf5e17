package ingest

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/hopfeed/hopfeed/tools/npy"
)

// clock tells which edges count for a node, by times: those before the node's, and within windows that end there.
type clock interface {
	edgeUser
	column() string // of the times of edges
}

// timeUnits are the nanoseconds of the units of times.
var timeUnits = map[string]int64{"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9, "m": 60e9, "h": 3600e9, "d": 86400e9,
	"w": 7 * 86400e9}

// newClock makes a clock of the times of edges and of nodes, which are both integers or both float64, so that no edge
// is taken as earlier than it is.
func newClock(edges inputColumn, unit string, ofNodes []inputColumn, asked EdgeFeatures) (clock, error) {
	if unit == "" {
		unit = "s"
	}
	if timeUnits[unit] == 0 || unit == "w" {
		return nil, badOptions("--edge-time %s: unit %s (want ns, us, ms, s, m, h or d)", asked.Time, unit)
	}
	var times *inputColumn
	if asked.NodeTime != "" {
		at, err := findColumn("node-time", asked.NodeTime, ofNodes)
		if err != nil {
			return nil, err
		}
		times = &ofNodes[at]
	} else if asked.Until == "" {
		return nil, badOptions("--edge-time %s: give --node-time COLUMN or --until TIME, before which edges count",
			asked.Time)
	}
	for _, c := range []*inputColumn{&edges, times} {
		if c == nil {
			continue
		}
		switch kind, _ := npy.ParseType(c.DType); {
		case c.Columns > 1:
			return nil, badOptions("%s: column %s has %d numbers each (want one time)", c.path, c.Name, c.Columns)
		case kind == npy.Float16 || kind == npy.Float32 || kind == npy.Uint64:
			return nil, badOptions("%s: column %s is %s, which times may not fit (want int64 or float64; tables: "+
				"--edge-columns %[2]s:int64)", c.path, c.Name, kind)
		case times != nil && (c.DType == "float64") != (edges.DType == "float64"):
			return nil, badOptions("--edge-time is %s and --node-time %s: want integers of both, or float64", edges.DType,
				times.DType)
		}
	}
	if edges.DType == "float64" {
		parse := func(s string) (float64, error) { return strconv.ParseFloat(s, 64) }
		return clockOf(edges, times, unit, asked, parse, math.Inf(1))
	}
	parse := func(s string) (int64, error) { return strconv.ParseInt(s, 10, 64) }
	return clockOf(edges, times, unit, asked, parse, math.MaxInt64)
}

// clockTimes is a clock of times in one unit.
type clockTimes[T int64 | float64] struct {
	edges          inputColumn
	nodes          *inputColumn // nil: all have until
	kind, nodeKind npy.Type

	until    T
	hasUntil bool
	windows  []T // ascending
	forever  T   // the window without a beginning

	f       *edgeFeatures
	walk    nodeWalk
	times   []T       // of some edges
	first   []uint8   // the first window of these
	counts  []float32 // a window each, of the node so far
	ofNodes []byte    // rows of some nodes
	start   int64     // the first of them
	now     T         // of node
	node    int64     // -1: none
}

func clockOf[T int64 | float64](edges inputColumn, nodes *inputColumn, unit string, asked EdgeFeatures,
	parse func(string) (T, error), forever T) (*clockTimes[T], error) {
	c := &clockTimes[T]{edges: edges, nodes: nodes, forever: forever, node: -1}
	var err error
	c.kind, _ = npy.ParseType(edges.DType) // which were checked
	if nodes != nil {
		c.nodeKind, _ = npy.ParseType(nodes.DType)
	}
	if asked.Until != "" {
		if c.until, err = parse(asked.Until); err != nil || c.until-c.until != 0 {
			return nil, badOptions("--until %s: want a number like those of column %s (%s)", asked.Until, edges.Name,
				edges.DType)
		}
		c.hasUntil = true
	}
	for _, text := range asked.Windows {
		w, err := windowOf(text, unit, parse, forever)
		if err != nil {
			return nil, err
		}
		if len(c.windows) > 0 && w <= c.windows[len(c.windows)-1] {
			return nil, badOptions("--windows %s: want longer and longer windows", text)
		}
		c.windows = append(c.windows, w)
	}
	if len(c.windows) == 0 {
		c.windows = []T{forever}
	}
	if len(c.windows) > mostWindows {
		return nil, badOptions("--windows: %d windows (at most %d)", len(c.windows), mostWindows)
	}
	return c, nil
}

// windowOf is the length of a window, as a number of units of the column.
func windowOf[T int64 | float64](text, unit string, parse func(string) (T, error), forever T) (T, error) {
	if text == AllTime {
		return forever, nil
	}
	bad := badOptions("--windows %s: want a number above 0 of the column's type, perhaps with s, m, h, d or w, or %s",
		text, AllTime)
	number, scale := text, T(1)
	if n := len(text); n > 1 && timeUnits[text[n-1:]] != 0 {
		number = text[:n-1]
		mine, whole := timeUnits[text[n-1:]], timeUnits[unit]
		if scale = T(mine) / T(whole); mine%whole != 0 && scale == T(int64(scale)) { // the fraction of an integer is lost
			return 0, badOptions("--windows %s: is no whole number of the unit %s of --edge-time", text, unit)
		}
	}
	w, err := parse(number)
	if err != nil || !(w > 0) || w >= forever/scale {
		return 0, bad
	}
	return w * scale, nil
}

func (c *clockTimes[T]) column() string { return c.edges.Name }

func (c *clockTimes[T]) begin(f *edgeFeatures, degrees []uint32) {
	c.f, c.walk = f, nodeWalk{degrees: degrees}
	c.times, c.first, c.counts = make([]T, 1<<12), make([]uint8, 1<<12), make([]float32, len(c.windows))
}

func (c *clockTimes[T]) add(rows []byte) error {
	size := int(c.edges.RowBytes())
	for done, n := 0, 0; len(rows) > 0; done, rows = done+n, rows[n*size:] {
		n = min(len(c.times), len(rows)/size)
		npy.Convert(c.times[:n], rows[:n*size], &npy.Header{Type: c.kind})
		for i, t := range c.times[:n] {
			if t-t != 0 {
				return &badRow{done + i, fmt.Sprintf("time %v is not finite", t)}
			}
		}
		if err := c.walk.each(n, c.addEdges, c.end); err != nil {
			return err
		}
		if err := c.f.inTime.put(c.first[:n]); err != nil {
			return err
		}
	}
	return nil
}

// addEdges finds the first window of some edges of a node.
func (c *clockTimes[T]) addEdges(node int64, first, end int) error {
	if node != c.node {
		if err := c.read(node); err != nil {
			return err
		}
	}
	for e := first; e < end; e++ {
		w := len(c.windows) // none
		if t := c.times[e]; t < c.now {
			before := c.now - t
			if before < 0 { // beyond int64
				before = c.forever
			}
			w, _ = slices.BinarySearch(c.windows, before)
		}
		c.first[e] = uint8(w)
		for ; w < len(c.windows); w++ {
			c.counts[w]++
		}
	}
	return nil
}

// read reads the time of a node.
func (c *clockTimes[T]) read(node int64) error {
	if c.node, c.now = node, c.until; c.nodes == nil {
		return nil
	}
	size := c.nodes.RowBytes()
	if at := (node - c.start) * size; c.ofNodes == nil || at >= int64(len(c.ofNodes)) {
		c.start = node
		c.ofNodes = slices.Grow(c.ofNodes[:0], readBytes)[:min(readBytes/size, c.nodes.rows-node)*size]
		if err := c.nodes.read(c.ofNodes, node*size); err != nil {
			return err
		}
	}
	var now [1]T
	npy.Convert(now[:], c.ofNodes[(node-c.start)*size:][:size], &npy.Header{Type: c.nodeKind})
	switch {
	case now[0]-now[0] == 0:
		c.now = now[0]
	case !c.hasUntil:
		return fmt.Errorf("%w: %s, column %s: %v is no time: give --until TIME for such nodes", ErrInvalid,
			c.nodes.place(node), c.nodes.Name, now[0])
	}
	return nil
}

func (c *clockTimes[T]) end(int64) error {
	if !c.f.counts {
		return nil
	}
	err := putFloats(c.f.counted, c.counts...)
	clear(c.counts)
	return err
}

func (c *clockTimes[T]) finish() error {
	err := c.walk.rest(c.end)
	if err == nil && c.f.counts {
		err = c.f.counted.flush()
	}
	if err == nil {
		err = c.f.inTime.flush()
	}
	return err
}
