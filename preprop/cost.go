package preprop

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
	assembling              // result files into the store
	phases
)

// cost is what a stage of a job takes. A stage declares its cost beside the code that
// allocates, reads and writes; a plan is the sum of its stages (work.stages).
// TestJobsTakeWhatTheirStagesDeclare compares declared and real bytes.
type cost struct {
	memory, scratch, store [phases]int64 // bytes that are held during each phase: memory, scratch files, files of the store
	read, written          int64         // bytes of files
	inputPasses            int           // over the input
	topologyPasses         int           // over a topology on disk
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
		c.memory[p] += other.memory[p]
		c.scratch[p] += other.scratch[p]
		c.store[p] += other.store[p]
	}
	c.read += other.read
	c.written += other.written
	c.inputPasses += other.inputPasses
	c.topologyPasses += other.topologyPasses
}

// stages are the costs of the stages of a job, within a plan.
func (w *work) stages(p *Plan) []cost {
	return []cost{
		w.rowsCost(), w.topologiesCost(p), w.factorsCost(p), w.neededCost(p), w.hopsCost(p), w.deviceCost(p), w.matricesCost(p),
		w.cutCost(p), w.loadCost(p), w.writebackCost(p), w.storeCost(p), w.resultsCost(p), w.checkpointsCost(p),
	}
}

// cost is the sum of the stages.
func (w *work) cost(p *Plan) (sum cost) {
	for _, stage := range w.stages(p) {
		sum.add(stage)
	}
	return sum
}
