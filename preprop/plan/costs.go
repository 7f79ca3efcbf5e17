package plan

import (
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/operator"
)

// phase is a part of the time of a job.
type phase int

const (
	choosing   phase = iota // the rows of the store, and their table
	preparing               // topologies, factors, and which nodes are needed
	cutting                 // the input into column files
	loading                 // the input into the first panel
	computing               // the first panel
	writing                 // the first panel
	lastPanel               // is written: the files of all panels are on disk
	Assembling              // result files into the store
	phases
)

// cost is what a stage of a job takes. A stage declares its cost beside the code that allocates, reads and writes; a
// plan is the sum of its stages (work.stages). TestJobsTakeWhatTheirStagesDeclare compares declared and real bytes.
type cost struct {
	// bytes that are held during each phase: memory, scratch files, files of the store
	Memory, scratch, store [phases]int64
	read, written          int64 // bytes of files
	inputPasses            int   // over the input
	topologyPasses         int   // over a topology on disk
}

// during is bytes that are held from one phase to another, both included.
func during(first, last phase, bytes int64) (held [phases]int64) {
	for p := first; p <= last; p++ {
		held[p] = bytes
	}
	return held
}

func (c *cost) add(other cost) {
	for p := range phases {
		c.Memory[p] += other.Memory[p]
		c.scratch[p] += other.scratch[p]
		c.store[p] += other.store[p]
	}
	c.read += other.read
	c.written += other.written
	c.inputPasses += other.inputPasses
	c.topologyPasses += other.topologyPasses
}

// stages are the costs of the stages of a job, within a plan.
func (w *Work) stages(p *Plan) []cost {
	return []cost{
		w.rowsCost(), w.topologiesCost(p), w.factorsCost(p), w.neededCost(p), w.hopsCost(p), w.deviceCost(p),
		w.matricesCost(p),
		w.cutCost(p), w.loadCost(p), w.writebackCost(p), w.storeCost(p), w.resultsCost(p), w.checkpointsCost(p),
	}
}

// Cost is the sum of the stages.
func (w *Work) Cost(p *Plan) (sum cost) {
	for _, stage := range w.stages(p) {
		sum.add(stage)
	}
	return sum
}

// checkpointsCost is what checkpoints take until the last panel is done. writebackCost has their memory.
func (w *Work) checkpointsCost(p *Plan) cost {
	return cost{scratch: during(computing, lastPanel, p.CheckpointBytes)}
}

// checkpointBytes is the most bytes of disk that checkpoints take: two of a panel with this many columns, as one is
// written before the other is removed.
func (w *Work) checkpointBytes(columns int) int64 {
	if len(w.Sequences) == 0 {
		return 0
	}
	hops, series := PanelMatrices(w.Sequences, w.Stored.DType, false)
	return 2 * w.Nodes * int64(columns*(hops*w.Stored.DType.Size()+4*series))
}

// deviceCost is what a device takes of the host: pinned memory, and lengths of lists.
func (w *Work) deviceCost(p *Plan) cost {
	if p.Device == nil || p.Device.Name == CPU {
		return cost{}
	}
	bytes := p.Device.PinnedBytes
	if p.Device.TopologyOnDevice {
		bytes += 4 * w.Nodes
	}
	return cost{Memory: during(computing, writing, bytes)}
}

// matricesCost is what the matrices of a panel take, which are held as long as there are panels.
func (w *Work) matricesCost(p *Plan) cost {
	hops, series := PanelMatrices(w.Sequences, w.Stored.DType, p.InputInMemory)
	matrix := w.Nodes * int64(p.PanelColumns)
	first := loading
	if p.InputKept {
		first = cutting
	}
	return cost{Memory: during(first, lastPanel, matrix*int64(hops*w.Stored.DType.Size()+4*series))}
}

// factorsCost is what factors take: 4 bytes a node for each Operator.Base, and 8 for degrees while the factors of Col
// are computed, in one pass over the operator's graph.
func (w *Work) factorsCost(p *Plan) cost {
	var c cost
	_, bases := w.graphs()
	degrees := int64(0)
	for base := range bases {
		c.add(cost{Memory: during(preparing, lastPanel, 4*w.Nodes)})
		if base.Name == operator.Col {
			degrees = 8 * w.Nodes
		}
		if !p.TopologyInMemory {
			c.add(cost{read: w.topologyOf(base.Graph), topologyPasses: 1})
		}
	}
	c.Memory[preparing] += degrees
	return c
}

// hopsCost is what products take: each reader of the topology has a batch, and each product reads a topology on disk
// once for each panel.
func (w *Work) hopsCost(p *Plan) cost {
	var c cost
	if len(w.Sequences) == 0 {
		return c
	}
	readers := w.Threads
	if !p.TopologyInMemory {
		readers = DiskReaders(w.Threads)
		for _, s := range w.Sequences {
			passes := s.products() * p.Panels
			c.add(cost{read: int64(passes) * w.topologyOf(s.Operator.Graph), topologyPasses: passes})
		}
	}
	c.Memory = during(computing, computing, int64(readers)*BatchBytes(p.PanelColumns, w.Weighted))
	return c
}

// inputBytes is the size of an input, and inputFileBytes that of its column files.
func (w *Work) inputBytes(l format.Layout) int64 { return w.Nodes * int64(l.Features*l.DType.Size()) }

func (w *Work) inputFileBytes() int64 { return w.share(w.Nodes * w.storedRowBytes()) }

// inputFileBlock is the size of a chunk's columns in a column file of the widest panel.
func (w *Work) inputFileBlock(p *Plan) int64 {
	most := int64(0)
	for _, l := range w.Inputs {
		most = max(most, int64(l.ChunkRows*p.PanelColumns*w.Stored.DType.Size()))
	}
	return most
}

// InputChunk is the largest chunkBuffer.
func (w *Work) InputChunk() int64 {
	most := int64(0)
	for _, l := range w.Inputs {
		most = max(most, ChunkBuffer(l))
	}
	return most
}

// cutCost is what cutting inputs takes: each reader has a chunk of the input, each reader and one more the columns
// for the files, and each file has a stream. All files exist when the first panel begins; the files of a panel are
// removed when it is done.
func (w *Work) cutCost(p *Plan) cost {
	if !p.InputFiles {
		return cost{}
	}
	var c cost
	for _, l := range w.Inputs {
		columns := int64(l.ChunkRows * w.Columns * w.Stored.DType.Size())
		file, cut := w.inputFileBytes()/int64(p.Panels), w.inputFileBytes()-w.keptBytes(p)
		readers := int64(DiskReaders(w.Threads))
		memory := readers*ChunkBuffer(l) + (readers+1)*columns + int64(p.Panels)*vfs.StreamBytes(file)
		c.Memory[cutting] = max(c.Memory[cutting], memory)
		c.add(cost{read: w.inputBytes(l), written: cut, scratch: during(cutting, writing, cut), inputPasses: 1})
	}
	c.scratch[lastPanel] = c.scratch[writing] / int64(p.Panels)
	return c
}

// loadCost is what loading takes: each sequence reads its input for each panel, or its column files once; with an
// input in memory, one sequence of several reads it. A job that goes on reads chunks of the store, or blocks of
// result files or checkpoints, instead.
func (w *Work) loadCost(p *Plan) cost {
	var c cost
	for i, l := range w.Inputs {
		loads := w.Loads[i]
		if p.InputInMemory {
			loads = 1
		}
		if p.InputFiles {
			c.add(cost{read: int64(loads)*w.inputFileBytes() - w.keptBytes(p)})
		} else {
			c.add(cost{read: int64(loads*p.Panels) * w.inputBytes(l), inputPasses: loads * p.Panels})
		}
	}
	threads, readers := int64(w.Threads), int64(DiskReaders(w.Threads))
	memory := threads * vfs.WholePages(columnFileBlock(w.Nodes, w.storedRowBytes(), w.storedRowBytes()))
	if p.InputFiles {
		memory = max(memory, threads*vfs.WholePages(w.inputFileBlock(p)))
	} else {
		memory = max(memory, readers*w.InputChunk())
	}
	if w.Rows == w.Nodes {
		memory = max(memory, readers*ChunkBuffer(w.Stored))
	}
	c.Memory = during(loading, loading, memory)
	return c
}

// KeepsRows tells whether the rows of hop 0 fit into the memory of the first hop.
func (w *Work) KeepsRows(p *Plan) bool {
	return p.InputKept && w.MakesInput && !w.ResultFiles && w.Columns == w.Stored.Features &&
		KeptRowsBytes(w.Rows, w.storedRowBytes(), w.Nodes) <= w.Nodes*int64(p.PanelColumns*w.Stored.DType.Size())
}

// keptBytes are the bytes of the first panel, which go to no file.
func (w *Work) keptBytes(p *Plan) int64 {
	if !p.InputKept {
		return 0
	}
	return w.Nodes * int64(p.PanelColumns*w.Stored.DType.Size())
}

// storeCost is what the store takes. Its rows are there from the start. Its matrices grow until the last panel, or
// while result files are assembled, but for hop 0 where that is kept.
func (w *Work) storeCost(p *Plan) cost {
	rows := w.StoreBytes - int64(w.Matrices)*w.MatrixBytes
	c := cost{written: w.StoreBytes, store: during(preparing, Assembling, rows)}
	c.store[Assembling] = w.StoreBytes
	if !p.ResultFiles {
		c.store[lastPanel] = w.StoreBytes
	} else if w.KeepsRows(p) {
		for at := cutting; at <= lastPanel; at++ {
			c.store[at] += w.MatrixBytes
		}
	}
	return c
}

// neededCost is what the sets of needed nodes take: one set for each product, if the store has some nodes only. A
// topology on disk is read for each set but the last.
func (w *Work) neededCost(p *Plan) cost {
	var c cost
	if w.Rows == w.Nodes {
		return c
	}
	longest, _ := w.graphs()
	for graph, products := range longest {
		c.add(cost{Memory: during(preparing, lastPanel, int64(products)*NodeSetBytes(w.Nodes))})
		if !p.TopologyInMemory {
			c.add(cost{read: int64(products-1) * w.topologyOf(graph), topologyPasses: products - 1})
		}
	}
	return c
}

// resultsCost is what result files take. They grow with the panels. They are read once, a matrix at a time, through
// two buffers for each thread and one more; the files of a matrix are removed when the store has it.
func (w *Work) resultsCost(p *Plan) cost {
	if !p.ResultFiles {
		return cost{}
	}
	row, matrices := w.storedRowBytes(), w.Matrices
	if w.KeepsRows(p) {
		matrices-- // hop 0 is in the store by then
	}
	made := w.share(w.Rows * row * int64(matrices))
	c := cost{read: made, written: made}
	c.scratch[writing], c.scratch[lastPanel], c.scratch[Assembling] = made/int64(p.Panels), made,
		made/int64(max(1, matrices))
	c.Memory[Assembling] = int64(w.Threads+1)*2*vfs.WholePages(columnFileBlock(w.Rows, row, row)) +
		vfs.StreamBytes(w.MatrixBytes)
	return c
}

// rowsCost is what the rows of the store take: they are held with their nodes while they are chosen, and the nodes
// alone afterwards. The table of the graph is read three times.
func (w *Work) rowsCost() cost {
	c := cost{read: 3 * w.RowTableBytes, Memory: during(preparing, Assembling, 4*w.Rows+w.Held)}
	c.Memory[choosing] = w.PickedBytes + w.Held + vfs.StreamBytes(w.RowTableBytes)
	return c
}

// topologiesCost is what topologies take. They are held in memory or in files; the graph's own file is there already.
// Each reader has a buffer. Opening a file reads it, and its offsets twice.
func (w *Work) topologiesCost(p *Plan) cost {
	used, _ := w.graphs()
	if len(used) == 0 {
		return cost{}
	}
	open := func(bytes int64) cost { return cost{read: bytes + 8*(w.Nodes+1), topologyPasses: 1} }
	given := w.topologyOf(operator.AsGiven)
	givenInMemory := p.TopologyInMemory && used[operator.AsGiven] > 0
	c, block, building := open(given), w.rangeBytes(operator.AsGiven), int64(0)
	if givenInMemory {
		c = cost{read: given, topologyPasses: 1, Memory: during(preparing, lastPanel, given)}
	}
	for graph := range used {
		if graph == operator.AsGiven {
			continue
		}
		bytes := w.topologyOf(graph)
		if p.TopologyInMemory {
			c.add(cost{Memory: during(preparing, lastPanel, bytes)})
		} else {
			c.add(open(bytes))
			c.add(cost{written: bytes, scratch: during(preparing, lastPanel, bytes)})
			block = max(block, w.rangeBytes(graph))
		}
		memory, passes := w.deriveCost(graph, p.TopologyInMemory)
		building = max(building, memory)
		if !givenInMemory {
			c.add(cost{read: int64(passes) * given, topologyPasses: passes})
		}
	}
	c.Memory[preparing] += building
	switch {
	case !p.TopologyInMemory:
		streams := streamBytes(DiskReaders(w.Threads), block)
		c.Memory[preparing] += streams
		c.Memory[computing] += streams
	case !givenInMemory:
		c.Memory[preparing] += block // derive reads the given topology in order
	}
	return c
}

// rangeBytes bounds the blocks of the topologies that are used, TopologyFile.BlockBytes. Without parallel edges a
// node has no more neighbours than there are nodes.
func (w *Work) rangeBytes(graph string) int64 {
	list := EdgeBytes(w.Weighted)*min(w.EdgesOf(graph), w.Nodes) + 2*8
	return min(w.topologyOf(graph), max(StreamRangeBytes, list)) + 64 // rounded up
}

// deriveCost is what derive takes to make a graph: offsets, a run, and for Undirected a block of the union; passes
// over what is given, one to count, one a run and one for the unions.
func (w *Work) deriveCost(graph string, inMemory bool) (memory int64, passes int) {
	edges := EdgeBytes(w.Weighted) * w.Edges
	room := DeriveRoom(inMemory, w.Edges, w.Weighted)
	longest := EdgeBytes(w.Weighted) * min(w.Edges, w.Nodes)
	memory, passes = 8*(w.Nodes+1)+min(edges, max(room, longest)), 2+int(edges/max(room+1, 1))
	if graph == operator.Undirected {
		block := min(edges+8*w.Nodes, max(EdgeBytes(w.Weighted)*OrderedCost, StreamRangeBytes, longest))
		memory, passes = memory+2*block, passes+1
	}
	return memory, passes
}

// writebackCost is what writing matrices takes beside other things, from the first hop on, or while the input of
// another panel or sequence is read: buffers, and the stream of a file (or of a checkpoint, which waits for it).
func (w *Work) writebackCost(p *Plan) cost {
	row, width := w.storedRowBytes(), int64(p.PanelColumns*w.Stored.DType.Size())
	b, file := StoreBuffers(w.Rows, row, w.Threads), w.MatrixBytes
	if p.ResultFiles {
		b, file = ResultBuffers(w.Rows, row, width, w.Threads), w.Rows*width
	}
	first, loads := computing, 0
	for _, n := range w.Loads {
		loads += n
	}
	if p.Panels > 1 || loads > 1 {
		first = loading
	}
	return cost{Memory: during(first, lastPanel, b.total()+vfs.StreamBytes(max(file, p.CheckpointBytes/2)))}
}
