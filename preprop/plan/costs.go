package plan

import (
	"slices"

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

// cost is one thing that a job takes, held from one phase to another, both included. A plan is the sum of the costs of
// its job. TestJobsTakeWhatTheirStagesDeclare compares declared and real bytes.
type cost struct {
	what                   string
	first, last            phase
	memory, scratch, store int64 // bytes held: of memory, of scratch files, of files of the store
	read, written          int64 // bytes of files
	inputPasses            int   // over the input
	topologyPasses         int   // over a topology on disk
}

// during is memory in bytes that is held from one phase to another.
func during(first, last phase, what string, memory int64) cost {
	return cost{what: what, first: first, last: last, memory: memory}
}

// costs lists what a job takes within a plan. Each of the functions adds to the list.
func (w *Work) costs(p *Plan) []cost {
	list := make([]cost, 0, 32)
	for _, add := range [...]func(*Work, *Plan, []cost) []cost{(*Work).rowCosts, (*Work).topologyCosts,
		(*Work).productCosts, (*Work).inputCosts, (*Work).resultCosts} {
		list = add(w, p, list)
	}
	return list
}

// cut is the phase in which the input begins to be cut, or read into the first panel.
func (p *Plan) cut() phase {
	if p.CutBeside {
		return preparing
	}
	return cutting
}

// held is bytes that are held during each phase.
type held [phases]int64

func (h *held) add(c cost, bytes int64) {
	for at := c.first; at <= c.last; at++ {
		h[at] += bytes
	}
}

// MemoryBytes is the memory in bytes that a job takes within a plan during each phase, beside ProcessBytes.
func (w *Work) MemoryBytes(p *Plan) (memory held) {
	for _, c := range w.costs(p) {
		memory.add(c, c.memory)
	}
	return memory
}

// count sets what a plan takes.
func (w *Work) count(p *Plan) {
	var memory, scratch, store held
	var sum cost
	p.besideBytes, p.cutBytes = 0, 0
	for _, c := range w.costs(p) {
		memory.add(c, c.memory)
		scratch.add(c, c.scratch)
		store.add(c, c.store)
		sum.read, sum.written = sum.read+c.read, sum.written+c.written
		switch {
		case c.first == computing:
			p.besideBytes += c.read
		case c.first == p.cut() && c.last == writing:
			p.cutBytes += c.scratch
		}
		sum.inputPasses, sum.topologyPasses = sum.inputPasses+c.inputPasses, sum.topologyPasses+c.topologyPasses
	}
	p.MemoryBytes, p.ScratchBytes, p.DiskBytes = ProcessBytes+slices.Max(memory[:]), slices.Max(scratch[:]), 0
	for at := range phases {
		p.DiskBytes = max(p.DiskBytes, scratch[at]+store[at])
	}
	p.ReadBytes, p.WrittenBytes, p.StoreBytes = sum.read, sum.written, w.StoreBytes
	p.InputPasses, p.TopologyPasses = sum.inputPasses, sum.topologyPasses
}

// rowCosts: the rows of the store are there before its matrices, which grow until the last panel, or while result
// files are assembled.
func (w *Work) rowCosts(p *Plan, list []cost) []cost {
	matrices := int64(w.Matrices) * w.MatrixBytes
	done := lastPanel
	if p.ResultFiles {
		done = Assembling
	}
	return append(list, []cost{
		{what: "rows while they are chosen", first: choosing, last: choosing, read: 3 * w.RowTableBytes,
			memory: w.PickedBytes + w.Held + vfs.StreamBytes(w.RowTableBytes)},
		during(preparing, Assembling, "nodes of the rows", 4*w.Rows+w.Held),
		{what: "rows", first: preparing, last: Assembling, store: w.StoreBytes - matrices, written: w.StoreBytes},
		{what: "matrices", first: done, last: Assembling, store: matrices},
	}...)
}

// topologyCosts: topologies are held in memory or in files. The graph's own file is there already: opening it reads
// its offsets, and the first pass checks it. A derived one is read whole when it is opened, and its offsets twice. Each
// reader has a buffer.
func (w *Work) topologyCosts(p *Plan, list []cost) []cost {
	used, _ := w.graphs()
	if len(used) == 0 {
		return list
	}
	given, offsets := w.topologyOf(operator.AsGiven), 8*(w.Nodes+1)
	givenInMemory := p.TopologyInMemory && slices.ContainsFunc(used, func(u use) bool {
		return u.graph == operator.AsGiven
	})
	opened := cost{what: "topology", read: offsets}
	if givenInMemory {
		opened = during(preparing, lastPanel, "topology", given)
		opened.read, opened.topologyPasses = given, 1
	}
	list = append(list, opened)
	longest, building := w.rangeBytes(operator.AsGiven), int64(0)
	for _, u := range used {
		graph := u.graph
		if graph == operator.AsGiven {
			continue
		}
		made := cost{what: "derived topology", first: preparing, last: lastPanel, memory: w.topologyOf(graph)}
		if !p.TopologyInMemory {
			made.memory, made.scratch, made.written = 0, made.memory, made.memory
			made.read, made.topologyPasses = made.scratch+offsets, 1
			longest = max(longest, w.rangeBytes(graph))
		}
		memory, passes := w.deriveCost(graph, p.TopologyInMemory)
		building = max(building, memory)
		if !givenInMemory {
			made.read += int64(passes) * given
			made.topologyPasses += passes
		}
		list = append(list, made)
	}
	list = append(list, during(preparing, preparing, "deriving topologies", building))
	switch {
	case !p.TopologyInMemory:
		stored, held, lists := w.HeldShares(p)
		for _, bytes := range stored {
			list = append(list, during(preparing, lastPanel, "lists of the store's nodes", bytes))
		}
		for graph, bytes := range held {
			list = append(list, cost{what: "held node ranges", first: preparing, last: lastPanel,
				memory: bytes, read: notRead(bytes, w.topologyOf(graph), w.rangeBytes(graph))})
		}
		for _, bytes := range lists {
			list = append(list, during(preparing, lastPanel, "held coefficients", bytes))
		}
		readers := DiskReaders(w.Threads)
		streams := streamBytes(readers, longest, LargestRange)
		list = append(list, during(preparing, preparing, "readers of topologies", streams))
		if p.FactorsByEdge {
			streams = streamBytes(readers, ListedRange(longest), ListedRange(LargestRange))
		}
		list = append(list, during(computing, computing, "readers of topologies", streams))
	case !givenInMemory:
		list = append(list, during(preparing, preparing, "reading the given topology in order", longest))
	}
	return list
}

// rangeBytes bounds the memory to read a node range of a topology on disk, TopologyFile.RangeBytes: each of three parts
// is read with the rest of its pages. Without parallel edges a node has no more neighbours than there are nodes.
func (w *Work) rangeBytes(graph string) int64 {
	list := EdgeBytes(w.Weighted)*min(w.EdgesOf(graph), w.Nodes) + 2*8
	return min(w.topologyOf(graph), max(StreamRangeBytes, list)) + 3*2*vfs.PageBytes
}

// deriveCost is what product.Derive takes to make a graph: offsets, a run, and for Undirected a node range of the
// union; passes over what is given, one to count, one a run and one for the unions.
func (w *Work) deriveCost(graph string, inMemory bool) (memory int64, passes int) {
	edges := EdgeBytes(w.Weighted) * w.Edges
	room := DeriveRoom(inMemory, w.Edges, w.Weighted)
	longest := EdgeBytes(w.Weighted) * min(w.Edges, w.Nodes)
	memory, passes = 8*(w.Nodes+1)+min(edges, max(room, longest)), 2+int(edges/max(room+1, 1))
	if graph == operator.Undirected {
		united := min(edges+8*w.Nodes, max(EdgeBytes(w.Weighted)*OrderedCost, StreamRangeBytes, longest))
		memory, passes = memory+2*united, passes+1
	}
	return memory, passes
}

// productCosts: each pass over a topology on disk reads it. Walks together find the factors of operators, list them by
// edge, find the needed nodes of each product but the last, and copy the lists of the store's nodes; sums by source
// take a pass of their own; then there is one for each product of each panel, but for the last ones where lists are
// copied.
func (w *Work) productCosts(p *Plan, list []cost) []cost {
	used, bases := w.graphs()
	stored, heldGraphs, heldLists := w.HeldShares(p)
	pass := func(c cost, graph string, passes int) {
		if size := w.topologyOf(graph); !p.TopologyInMemory {
			c.read = int64(passes) * (size - notRead(heldGraphs[graph], size, w.rangeBytes(graph)))
			c.topologyPasses = passes
		}
		list = append(list, c)
	}
	degrees, walks := int64(0), make([]int, len(used))
	for _, base := range bases {
		bySource, most := 0, 1
		if base.Name == operator.Col || base.Metapath != "" && base.Name == operator.Sym {
			degrees, bySource = 8*w.Nodes, 1
		}
		if base.Name == operator.Col {
			most = 0
		}
		pass(during(preparing, lastPanel, "factors", FactorsBytes(base, w.Nodes, w.Nodes)), base.Graph, bySource)
		if p.FactorsByEdge && base.ScalesSources() {
			list, most = append(list, w.listCosts(p, base, heldLists[base])...), most+1
		}
		at := slices.IndexFunc(used, func(u use) bool { return u.graph == base.Graph })
		walks[at] = max(walks[at], most)
	}
	list = append(list, during(preparing, preparing, "degrees for factors of col", degrees))
	for i, u := range used {
		if w.Rows < w.Nodes {
			list = append(list, during(preparing, lastPanel, "needed nodes", int64(u.products)*NodeSetBytes(w.Nodes)))
			walks[i] = max(walks[i], u.products-1)
		}
		if stored[u.graph] > 0 {
			walks[i] = max(walks[i], 2)
		}
		pass(cost{what: "walks before products", first: preparing, last: preparing}, u.graph, walks[i])
	}
	for _, s := range w.Sequences {
		passes := s.Products() * p.Panels
		if stored[s.Operator.Graph] > 0 {
			passes -= p.Panels
		}
		pass(cost{what: "products", first: computing, last: computing}, s.Operator.Graph, passes)
		if p.FactorsByEdge && s.Operator.ScalesSources() && !p.TopologyInMemory {
			size := w.listBytes(p, s.Operator.Base())
			list = append(list, cost{what: "coefficients of edges", first: computing, last: computing,
				read: int64(passes) * (size - notRead(heldLists[s.Operator.Base()], size, w.rangeBytes(s.Operator.Graph)))})
		}
	}
	if len(w.Sequences) > 0 {
		readers := w.Threads
		if !p.TopologyInMemory {
			readers = DiskReaders(w.Threads)
		}
		batches := int64(readers) * BatchBytes(p.PanelColumns)
		list = append(list, during(computing, computing, "a batch for each reader", batches))
	}
	if d := p.Device; d != nil && d.Name != CPU {
		pinned := during(computing, writing, "pinned memory of the device", d.PinnedBytes)
		if d.TopologyOnDevice {
			pinned.memory += 4 * w.Nodes // lengths of lists
		}
		list = append(list, pinned)
	}
	matrices := during(loading, lastPanel, "matrices of a panel", w.matrixBytes(p.PanelColumns, p.InputInMemory))
	if p.InputKept {
		matrices.first = p.cut()
	}
	return append(list, matrices)
}

// listCosts are what it takes to list the coefficients of an operator's edges beside the topology.
func (w *Work) listCosts(p *Plan, base operator.Operator, held int64) []cost {
	size := w.listBytes(p, base)
	made := cost{what: "coefficients of edges", first: preparing, last: lastPanel, memory: size}
	listing := int64(0)
	if !p.TopologyInMemory {
		inFile := size - notRead(held, size, w.rangeBytes(base.Graph))
		made.memory, made.scratch, made.written = 0, inFile, inFile
		listing = int64(DiskReaders(w.Threads)) * ListPiece * FactorBytes(w.Weighted)
	}
	if !w.Weighted {
		listing += 2 * w.Nodes
	}
	return []cost{made, during(preparing, preparing, "codes of factors", listing)}
}

// matrixBytes is the memory of the matrices of a panel.
func (w *Work) matrixBytes(columns int, inputInMemory bool) int64 {
	hops, series := PanelMatrices(w.Sequences, w.Stored.DType, inputInMemory)
	size := int64(columns * w.Stored.DType.Size())
	return w.Sources*size + w.Destinations*(int64(hops-1)*size+int64(4*columns*series))
}

// checkpointBytes is the most bytes of disk that checkpoints take: two of a panel with this many columns, as one is
// written before the other is removed.
func (w *Work) checkpointBytes(columns int) int64 {
	if len(w.Sequences) == 0 {
		return 0
	}
	return 2 * w.matrixBytes(columns, false)
}

// inputBytes is the size of an input, and inputFileBytes that of its column files.
func (w *Work) inputBytes(l format.Layout) int64 { return w.Nodes * int64(l.Features*l.DType.Size()) }

func (w *Work) inputFileBytes() int64 { return w.share(w.Nodes * w.storedRowBytes()) }

// InputChunk is the largest ChunkBuffer.
func (w *Work) InputChunk() (most int64) {
	for _, l := range w.Inputs {
		most = max(most, ChunkBuffer(l))
	}
	return most
}

// inputCosts: cutting gives each reader a chunk of the input, each reader and one more the columns for the files, and
// each file a stream. All column files exist when the first panel begins, but for what is kept of it; the files of a
// panel are removed when it is done. Each sequence reads its input for each panel, or its column files once; an input
// in memory is read by one sequence of several. A job that goes on reads chunks of the store, or groups of rows of
// result files or checkpoints, instead.
func (w *Work) inputCosts(p *Plan, list []cost) []cost {
	readers, size := int64(DiskReaders(w.Threads)), w.Stored.DType.Size()
	kept, cut, memory, group := int64(0), int64(0), int64(0), int64(0)
	if p.InputKept {
		kept = w.Nodes * int64(p.PanelColumns*size)
	}
	for i, l := range w.Inputs {
		loads := w.Loads[i]
		if p.InputInMemory {
			loads = 1
		}
		if !p.InputFiles {
			list = append(list, cost{what: "loading an input", read: int64(loads*p.Panels) * w.inputBytes(l),
				inputPasses: loads * p.Panels})
			continue
		}
		file := w.inputFileBytes() - kept
		cut += file
		memory = max(memory, readers*ChunkBuffer(l)+(readers+1)*int64(l.ChunkRows*w.Columns*size)+
			int64(p.Panels)*vfs.StreamBytes(w.inputFileBytes()/int64(p.Panels)))
		group = max(group, int64(l.ChunkRows*p.PanelColumns*size))
		list = append(list, cost{what: "cutting an input", read: w.inputBytes(l), written: file, inputPasses: 1},
			cost{what: "loading column files", read: int64(loads)*w.inputFileBytes() - kept})
	}
	row := w.storedRowBytes()
	load := int64(w.Threads) * vfs.WholePages(columnFileGroup(w.Nodes, row, row))
	if p.InputFiles {
		load = max(load, int64(w.Threads)*vfs.WholePages(group))
	} else {
		load = max(load, readers*w.InputChunk())
	}
	if w.Rows == w.Nodes {
		load = max(load, readers*ChunkBuffer(w.Stored))
	}
	return append(list,
		during(p.cut(), cutting, "cutting the input", memory),
		cost{what: "column files of the input", first: p.cut(), last: writing, scratch: cut},
		cost{what: "column files of the last panel", first: lastPanel, last: lastPanel, scratch: cut / int64(p.Panels)},
		during(loading, loading, "loading the input", load))
}

// resultCosts: matrices are written beside the next hop, or while the input of another panel or sequence is read,
// through buffers and the stream of a file, or of a checkpoint, which waits for it. Result files grow with the panels.
// They are read once, a matrix at a time, through two buffers for each thread and one more; the files of a matrix are
// removed when the store has it. Checkpoints are there until the last panel is done.
func (w *Work) resultCosts(p *Plan, list []cost) []cost {
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
	list = append(list,
		during(first, lastPanel, "writing matrices",
			int64(b.Count)*b.Bytes+vfs.StreamBytes(max(file, p.CheckpointBytes/2))),
		cost{what: "checkpoints", first: computing, last: lastPanel, scratch: p.CheckpointBytes})
	if !p.ResultFiles {
		return list
	}
	made := w.share(w.Rows * row * int64(w.Matrices))
	return append(list,
		cost{what: "result files of a panel", first: writing, last: writing, scratch: made / int64(p.Panels)},
		cost{what: "result files", first: lastPanel, last: lastPanel, scratch: made, read: made, written: made},
		cost{what: "result files of a matrix", first: Assembling, last: Assembling,
			scratch: made / int64(max(1, w.Matrices))},
		during(Assembling, Assembling, "assembling", AssembleBytes(w.Rows, row, w.MatrixBytes, w.Threads)))
}
