package preprop

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// Plan is how a job goes about its work within its memory. It changes no result.
type Plan struct {
	// Columns are dealt with in panels, one after another through all hops: the whole
	// of them in one where memory allows it.
	Panels       int `json:"panels"`
	PanelColumns int `json:"panel_columns"` // of the widest
	// Strips tells that the input is first cut into strips of columns, on scratch
	// disk, as reading all of its columns for each panel would cost more.
	Strips           bool `json:"strips"`
	InputInMemory    bool `json:"input_in_memory"` // one for several operators, with two matrices beside
	TopologyInMemory bool `json:"topology_in_memory"`
	Pieces           bool `json:"pieces"` // what panels make goes through scratch disk

	InputPasses    int     `json:"input_passes"`    // over all bytes of the input
	TopologyPasses int     `json:"topology_passes"` // over the topology on disk
	ReadBytes      int64   `json:"planned_bytes_read"`
	WrittenBytes   int64   `json:"planned_bytes_written"`
	ScratchBytes   int64   `json:"planned_scratch_bytes"` // most at a time
	MemoryBytes    int64   `json:"memory_needed_bytes"`
	StoreBytes     int64   `json:"planned_store_bytes"` // of what is added to the store
	DiskBytes      int64   `json:"disk_needed_bytes"`   // most at a time, of both
	Seconds        float64 `json:"predicted_seconds"`
}

// work is what there is to do, as far as a plan is concerned.
type work struct {
	nodes, edges int64
	weighted     bool
	chains       []chainWork
	features     int          // columns of all
	columns      int          // to be made: all but those that are there, or another's share
	from, to     format.DType // of the input, and of what is made
	inputChunk   int64        // bytes
	rows         int64        // stored
	rowTable     int64        // bytes, of the graph
	matrices     int          // to be made
	storeBytes   int64        // of these, and of what else goes to the store
	threads      int
	pieces       bool // needed even if one panel does, as another job has other columns
}

// chainWork is the hops that one operator makes of an input.
type chainWork struct {
	operator Operator
	hops     int
	input    int // number of what it starts from
}

// processBytes is what the program takes beside what it plans: code, stacks,
// heap, what is on its way to and from disk.
const processBytes = 64 << 20

// deriveRoomBytes is the least room in which edges are turned round.
const deriveRoomBytes = 64 << 20

// chainsOn tells how many products use each graph, and how many bases of operators there are.
func (w *work) graphs() (longest map[string]int, bases int) {
	longest, seen := map[string]int{}, map[Operator]bool{}
	for _, c := range w.chains {
		products := c.hops * c.operator.series().products()
		longest[c.operator.Graph] = max(longest[c.operator.Graph], products)
		seen[c.operator.base()] = true
	}
	return longest, len(seen)
}

// edgesOf is about how many edges a graph of operators has, at most.
func (w *work) edgesOf(graph string) int64 {
	if graph == Undirected {
		return 2 * w.edges
	}
	return w.edges
}

// memory is what a job takes beside its matrices, at its start and later, and for
// each column of a panel.
func (w *work) memory(p *Plan) (start, later, column int64) {
	column = w.nodes * int64(w.to.Size())
	start = 2*w.rowTable + 4*w.rows
	later = 4*w.rows + int64(w.threads)*w.inputChunk + 2*stagingBytes
	if p.Strips {
		later += int64(w.threads) * w.inputChunk * int64(w.to.Size()) / int64(w.from.Size())
	}
	if len(w.chains) == 0 {
		return start, later, column
	}
	longest, bases := w.graphs()
	kept, derived, room := int64(0), false, int64(deriveRoomBytes)
	for graph, products := range longest {
		if p.TopologyInMemory {
			kept += topologyBytes(w.nodes, w.edgesOf(graph), w.weighted)
		}
		derived = derived || graph != AsGiven
		if w.rows < w.nodes {
			later += int64(products) * (w.nodes/8 + 8) // node sets
		}
	}
	streams := int64(streamReaders(w.threads)) * 2 * streamBlockBytes
	if p.TopologyInMemory {
		room = edgeBytes(w.weighted) * w.edges
	}
	building := kept + streams
	if derived {
		building += 8*(w.nodes+1) + room + 2*edgeBytes(w.weighted)*orderedCost
	}
	most, spares := int64(2), 0
	if p.InputInMemory {
		most = 3
	}
	for _, c := range w.chains {
		spares = max(spares, c.operator.series().spares(w.to))
		if c.operator.Name == Col {
			building = max(building, kept+streams+8*w.nodes) // degrees
		}
	}
	column = most*column + 4*w.nodes*int64(spares)
	factors := 4 * w.nodes * int64(bases)
	return max(start, building+factors), later + kept + streams + factors, column
}

// assembly is the memory that putting pieces together takes.
func (w *work) assembly() int64 {
	return 4*w.rows + 2*int64(w.threads+1)*max(spillBlockBytes, int64(w.features*w.to.Size()))
}

// shape sets panels, and what follows from them, within a budget (0: none), and tells
// the least budget for a plan like this one. Panels are 0 where there is no such plan.
func (w *work) shape(p *Plan, budget int64) (least int64) {
	start, later, column := w.memory(p)
	need := func(width int, pieces bool) int64 {
		bytes := max(start, later+column*int64(width))
		if pieces {
			bytes = max(bytes, w.assembly())
		}
		return processBytes + bytes
	}
	whole := w.columns == w.features && !w.pieces // one panel needs no pieces
	least = need(1, w.columns > 1 || !whole)
	if whole {
		least = min(least, need(w.columns, false))
	}
	width := w.columns
	if budget > 0 {
		width = int(min(int64(width), (budget-processBytes-later)/max(column, 1))) // there may be no nodes
	}
	if width < 1 {
		return least
	}
	p.Panels = (w.columns + width - 1) / width
	p.PanelColumns = panelColumns(w.columns, p.Panels, width, w.to)
	p.Pieces = p.Panels > 1 || !whole
	if p.MemoryBytes = need(p.PanelColumns, p.Pieces); budget > 0 && p.MemoryBytes > budget {
		p.Panels = 0
	}
	return least
}

// panelColumns spreads columns over panels, at most most each: as whole cache lines
// where that makes no more panels.
func panelColumns(columns, panels, most int, t format.DType) int {
	const cacheLine = 64
	even := (columns + panels - 1) / panels
	line := cacheLine / t.Size()
	if lines := (even + line - 1) / line * line; panels > 1 && lines <= most {
		return lines
	}
	return even
}

// bytes sets what a plan reads and writes.
func (w *work) bytes(p *Plan) {
	share := func(bytes int64) int64 { return bytes / int64(w.features) * int64(w.columns) } // of the columns to be made
	all := w.nodes * int64(w.features)
	input, strips := all*int64(w.from.Size()), share(all*int64(w.to.Size()))
	inputs := map[int]bool{}
	for _, c := range w.chains {
		inputs[c.input] = true
	}
	loads := max(1, len(w.chains)) // for each panel
	if p.InputInMemory {
		loads = len(inputs)
	}
	p.InputPasses = loads * p.Panels
	read, written := int64(loads*p.Panels)*input, int64(0)
	if p.Strips {
		p.InputPasses = max(1, len(inputs))
		read = int64(p.InputPasses)*input + int64(loads)*strips
		written = int64(p.InputPasses) * strips
	}
	cut := written // strips, of which each goes when its panel is done
	pass, topologies := topologyBytes(w.nodes, w.edges, w.weighted), int64(0)
	longest, bases := w.graphs()
	p.TopologyPasses = 0
	for graph, products := range longest {
		bytes := topologyBytes(w.nodes, w.edgesOf(graph), w.weighted)
		if graph != AsGiven { // checked, counted, turned round
			runs := 1
			if !p.TopologyInMemory {
				runs = int(edgeBytes(w.weighted)*w.edges/deriveRoomBytes) + 1
				topologies += bytes
				written += bytes
			}
			p.TopologyPasses += 2 + runs
			read += int64(1+runs) * pass
			bytes += pass
		}
		p.TopologyPasses++
		read += bytes
		if !p.TopologyInMemory && w.rows < w.nodes { // which rows are needed
			p.TopologyPasses += products - 1
			read += int64(products-1) * bytes
		}
	}
	if !p.TopologyInMemory {
		p.TopologyPasses += bases
		read += int64(bases) * pass
		for _, c := range w.chains {
			products := c.hops * c.operator.series().products()
			p.TopologyPasses += products * p.Panels
			read += int64(products*p.Panels) * topologyBytes(w.nodes, w.edgesOf(c.operator.Graph), w.weighted)
		}
	}
	made, panels := int64(0), int64(p.Panels)
	if p.Pieces {
		made = share(w.rows * int64(w.features*w.to.Size()) * int64(w.matrices))
		written += made
		read += made
	}
	p.ScratchBytes = topologies + max(cut+made/panels, cut/panels+made)
	// As a matrix is put together, its pieces go.
	p.DiskBytes = max(p.ScratchBytes, w.storeBytes+made/int64(max(1, w.matrices)))
	p.ReadBytes = read + w.rowTable
	p.WrittenBytes = written + w.storeBytes
	p.StoreBytes = w.storeBytes
}

// seconds predicts how long a plan takes.
func (w *work) seconds(p *Plan, r *rates) float64 {
	seconds := float64(p.ReadBytes)/r.read + float64(p.WrittenBytes)/r.write + float64(p.MemoryBytes-processBytes)/r.touch
	for _, c := range w.chains {
		products := c.hops * c.operator.series().products()
		edges := w.neededShares(products) * float64(w.edgesOf(c.operator.Graph)+w.nodes)
		for done := 0; done < w.columns; done += p.PanelColumns {
			width := min(p.PanelColumns, w.columns-done)
			seconds += float64(edges * r.gather(int64(width*w.to.Size())))
		}
	}
	return seconds
}

// neededShares is about the shares of rows that so many products need, one after
// another, added up: where stored nodes are spread evenly and have neighbours as all have.
func (w *work) neededShares(products int) float64 {
	if w.nodes == 0 {
		return 0
	}
	share, sum := float64(w.rows)/float64(w.nodes), 0.0
	for left := products; left > 0; left-- {
		if sum += share; share == 1 {
			return sum + float64(left-1)
		}
		share = 1 - math.Pow(1-share, 1+float64(w.edges)/float64(w.nodes))
	}
	return sum
}

// plan is the quickest way to do the work within a budget of memory (0: no limit). Where
// there is none it is machine.ErrDoesNotFit, and tells the least budget that will do.
func (w *work) plan(budget int64, r *rates) (*Plan, error) {
	var best *Plan
	least := int64(math.MaxInt64)
	yesNo := []bool{true, false}
	for _, topology := range yesNo {
		for _, input := range yesNo {
			for _, strips := range yesNo {
				p := &Plan{TopologyInMemory: topology, InputInMemory: input, Strips: strips}
				least = min(least, w.shape(p, budget))
				if p.Panels == 0 || strips && p.Panels == 1 || input && len(w.chains) < 2 {
					continue
				}
				w.bytes(p)
				p.Seconds = w.seconds(p, r)
				if best == nil || p.Seconds < best.Seconds || p.Seconds == best.Seconds && p.MemoryBytes < best.MemoryBytes {
					best = p
				}
			}
		}
	}
	if best == nil {
		return nil, fmt.Errorf("propagation %w: it may use %v of memory, and needs %v at least (raise --memory)",
			machine.ErrDoesNotFit, units.Bytes(budget), enough(least))
	}
	return best, nil
}

// enough is the least that prints as what is enough for so many bytes when it is read back.
func enough(bytes int64) units.Bytes {
	for more := bytes; ; more += more/1000 + 1 {
		if b, err := units.ParseBytes(units.Bytes(more).String()); err != nil || int64(b) >= bytes {
			return units.Bytes(more)
		}
	}
}

// storeBytes is the size of a store in bytes: exact for the matrices, which are
// nearly all of it, and rounded up for the rest.
func storeBytes(graph *format.Manifest, layout format.Layout, matrices []format.MatrixID) (int64, error) {
	const page = 4096      // a chunk of the row table takes a page of metadata and is padded to whole pages
	const indexRow = 3 * 8 // of a chunk
	chunks, rows := int64(0), int64(0)
	for _, r := range layout.Regions {
		chunks += int64(r.Chunks)
		rows += r.Rows
	}
	tables := int64(1 + len(matrices))
	total := rowTableBytes(graph) + 4*rows + (chunks+2)*2*page + tables*(chunks*indexRow+200)
	var err error
	for _, id := range matrices {
		bytes, one := layout.MatrixBytes(id)
		total, err = total+bytes, errors.Join(err, one)
	}
	return total, err
}

// rowTableBytes is about what the row table of a graph takes, on disk or in
// memory; that of a store has a part of its rows and the node ids beside.
func rowTableBytes(graph *format.Manifest) int64 {
	const stringHeader = 16
	need := int64(0)
	for _, f := range graph.Files {
		if strings.HasPrefix(f.Path, "nodes/") {
			need += f.Size
		}
	}
	if graph.OrigIDs {
		need += stringHeader * graph.Nodes
	}
	return need
}

// checkDisk compares what is to be written below dir with the room there is.
func checkDisk(fsys vfs.FS, dir, what string, need int64) error {
	free, err := fsys.FreeBytes(existing(fsys, dir))
	if err != nil {
		return err
	}
	if need > free {
		return fmt.Errorf("%s %w: it takes %v and there are %v free under %s",
			what, machine.ErrDoesNotFit, units.Bytes(need), units.Bytes(free), dir)
	}
	return nil
}

// existing is dir, or the nearest folder above that is there.
func existing(fsys vfs.FS, dir string) string {
	for dir != filepath.Dir(dir) {
		if _, err := fsys.Stat(dir); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	return dir
}
