package sampling

// SamplerBytes is the memory off the heap of Go that a method takes for a graph of n nodes and m edges: what its
// samplers share, and what each of them has for itself.
func SamplerBytes(name string, a Aggregation, weighted bool, n, m int64) (shared, each int64) {
	if a == Sym || a == Mean && weighted { // factors
		shared += 4 * n
	}
	if a == Sym || a == Plain { // where self-loops are
		shared += 4 * n
	}
	each = 4 * n // local ids
	kind := methodKinds[name]
	if kind == nil {
		return shared, each
	}
	if kind.relabels {
		each += 4 * n
	}
	switch {
	case name == "saint-edge":
		shared += 12 * n
	case name == "saint-rw":
		shared += 4*n + 4*m
	case kind.prepare != nil: // columns
		shared += 8 * n
	}
	return shared, each
}
